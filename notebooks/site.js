// Search over PLACES (title, address, text), which stands above; and pictures at full size.
const box = document.getElementById("search");
const found = document.getElementById("found");

function matches(words) {
  const scored = [];
  for (const [title, address, text] of PLACES) {
    const head = title.toLowerCase(), body = text.toLowerCase();
    if (!words.every((word) => head.includes(word) || body.includes(word))) continue;
    const score = words.filter((word) => head.includes(word)).length;
    scored.push([score, title, address, text]);
  }
  return scored.sort((a, b) => b[0] - a[0]).slice(0, 20);
}

function around(text, word) {
  const at = Math.max(text.toLowerCase().indexOf(word) - 40, 0);
  return (at ? "…" : "") + text.slice(at, at + 120) + (at + 120 < text.length ? "…" : "");
}

box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.hidden = words.length === 0;
  found.replaceChildren();
  if (found.hidden) return;
  const hits = matches(words);
  if (!hits.length) found.textContent = "Nothing found.";
  for (const [, title, address, text] of hits) {
    const link = document.createElement("a"), more = document.createElement("small");
    link.href = address;
    link.textContent = title;
    more.textContent = around(text, words[0]);
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
