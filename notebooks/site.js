// Search over PLACES (title, address, text), which stands above; and pictures at full size.
const box = document.getElementById("search");
const found = document.getElementById("found");
const root = document.documentElement.dataset.root;
const COMMON = new Set(
  ("a an and are as at be been by can could did do does for from get had has have how i"
  + " if in is it its long many me mean means much my of on or our per should so that the"
  + " then there they this to was we were what when where which who whose why will with"
  + " would you your").split(" "));
// Words of newcomers, and the word of this site.
const ALIKE = {
  banned: "blocked", denied: "refused", exceeded: "refused", forbidden: "403", hit: "refused",
  rejected: "refused", throttled: "throttle", unauthorized: "401", "rate-limited": "429",
};

// Endings are cut off, so that "blocking" finds "blocked": stems are looked for where words begin.
const stem = (word) =>
  /^[a-z]{4,}$/.test(word) ? word.replace(/(?<=...)(?:ies|ing|ed|es|s|e|y)$/, "") : word;
const asked = (text) => {
  const words = text.toLowerCase().split(/[\s?!,;:"“”]+/).filter(Boolean);
  const rare = words.filter((word) => !COMMON.has(word));
  return [...new Set((rare.length ? rare : words).map((word) => stem(ALIKE[word] ?? word)))];
};
const starts = (text, word) => {
  const places = [];
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1))
    if (!at || !/[a-z0-9]/.test(text[at - 1])) places.push(at);
  return places;
};
const BODIES = PLACES.map(([title, , text]) => [title.toLowerCase(), text.toLowerCase()]);
const MEAN = BODIES.reduce((sum, [, body]) => sum + body.length, 0) / BODIES.length;

// What a newcomer looks for stands in the first chapter and in the others; ids are found anyhow.
const prior = (address) => /^00_/.test(address) ? 1.6 : /^\d/.test(address) ? 1 : 0.8;

// BM25 (Robertson and Zaragoza, 2009) over the texts; a word in a title counts as much again.
function matches(words) {
  const counts = words.map((word) =>
    BODIES.map(([head, body]) => [starts(head, word).length, starts(body, word).length]));
  const weights = counts.map((each) => {
    const holding = each.filter(([head, body]) => head + body).length;
    return Math.log(1 + (BODIES.length - holding + 0.5) / (holding + 0.5));
  });
  const scored = PLACES.map((place, at) => {
    let score = 0, met = 0;
    counts.forEach((each, word) => {
      const [head, body] = each[at];
      const long = 0.25 + 0.75 * BODIES[at][1].length / MEAN;
      if (head + body) met += 1;
      score += weights[word] * (2 * Math.min(head, 1) + body * 2.2 / (body + 1.2 * long));
    });
    return { place, met, score: score * prior(place[1]) * met / words.length };
  });
  const least = Math.ceil(words.length / 2);
  return scored.filter(({ met }) => met >= least).sort((a, b) => b.score - a.score).slice(0, 20);
}

// The stretch of a text that holds most of the words.
function excerpt(text, words) {
  const low = text.toLowerCase(), size = 150;
  let best = 0, most = 0;
  for (const place of words.flatMap((word) => starts(low, word).slice(0, 20))) {
    const from = Math.max(place - 40, 0), part = low.slice(from, from + size);
    const held = words.filter((word) => starts(part, word).length).length;
    if (held > most) [best, most] = [from, held];
  }
  const from = best ? low.indexOf(" ", best) + 1 : 0;
  const until = from + size < text.length ? text.lastIndexOf(" ", from + size) : text.length;
  return (from ? "… " : "") + text.slice(from, until) + (until < text.length ? " …" : "");
}

box.addEventListener("input", () => {
  const words = asked(box.value);
  found.hidden = words.length === 0;
  found.replaceChildren();
  if (found.hidden) return;
  const hits = matches(words);
  if (!hits.length) found.textContent = "Nothing found.";
  for (const { place: [title, address, text] } of hits) {
    const link = document.createElement("a"), more = document.createElement("small");
    link.href = root + address;
    link.textContent = title;
    more.textContent = excerpt(text, words);
    link.append(more);
    found.append(link);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { box.value = ""; found.hidden = true; }
  if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    box.focus();
  }
});
for (const figure of document.querySelectorAll("figure"))
  figure.addEventListener("click", () => figure.classList.toggle("whole"));
