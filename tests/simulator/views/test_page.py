"""The page: one file that loads nothing, escapes everything, and is the same bytes every time."""

import html
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import simulator
from engine.limits import LimitTable
from simulator.rows.findings import gather
from simulator.scenario import load, loads
from simulator.study.explorer import picture
from simulator.study.replay import replay
from simulator.views.charts import ADMITTED, CLAUSES, REFUSED
from simulator.views.report import spread_rows, versus, write_report
from tests.chromium import chromium, needs_chromium
from tests.simulator.rows.test_groups import WORKERS

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Counts elements, and checks that they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def count(self, *names: str) -> int:
        return sum(tag in names for tag, _ in self.tags)


def busy(count: int = 4_000, **columns: Any) -> pd.DataFrame:  # reason: any columns
    """Return a log on which several clauses bind, for many addresses."""
    return pd.DataFrame(
        {
            "t_ns": [n * n % 7_919 * 10**7 for n in range(count)],
            "ip": [f"203.0.113.{n % 7}" for n in range(count)],
            "key": [f"k{n % 3}" for n in range(count)],
            "path": "/tokens",
            "method": ["POST", "GET"] * (count // 2),
            **columns,
        }
    )


def page_of(tmp_path: Path, log: Any, **options: Any) -> str:  # reason: any log and options
    replay(log, out=tmp_path / "out", force=True, **options)
    return (tmp_path / "out" / "report.html").read_text("utf-8")


def drawings(page: str) -> Iterator[ET.Element]:
    for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        yield ET.fromstring(text)


def heights(path: ET.Element) -> list[float]:
    """Return the heights of the bars of a path."""
    return [float(v) for v in re.findall(r"h[-0-9.]+v([-0-9.]+)h", path.get("d") or "")]


def test_it_answers_first_and_shows_every_part(tmp_path: Path) -> None:
    old = LimitTable.default().replace_rule("LIM-PUBLIC", rate="20/1m")
    page = page_of(tmp_path, busy(), against=old)
    for heading in (
        "Which limits refused requests, and when",
        "By limit clause",
        "What if: default instead of given",
        "Who was locked out, when and for how long",
        "Refused most",
        "Waiting",
        "Repeat this run",
    ):
        assert f">{heading}</h2>" in page
    assert "would have been refused, all by LIM-PUBLIC: the first at" in page.replace("\u202f", " ")
    assert Page(page).count("table") >= 9


def test_a_what_if_names_every_clause_and_the_keys_and_addresses_that_change_most() -> None:
    lines = [{"name": f"n{place}", "gained": 20 - place, "lost": place} for place in range(14)]
    found = versus({"against": {"clauses": lines, "keys": lines, "ips": lines}})
    assert found is not None
    assert [len(found[part]) for part in ("clauses", "keys", "ips")] == [14, 12, 12]
    assert found["keys"][0]["name"] == "n0"
    bars = [(line["gained_bar"], line["lost_bar"]) for line in found["clauses"]]
    assert bars[:2] + bars[-1:] == [(100, 0), (95, 5), (35, 65)], "in percent of the largest"


def test_it_loads_and_runs_nothing(tmp_path: Path) -> None:
    page = page_of(tmp_path, busy(400))
    parsed = Page(page)
    assert parsed.count("script", "link", "img", "iframe", "object", "embed", "base") == 0
    addresses = [
        value
        for _, attrs in parsed.tags
        for name, value in attrs.items()
        if name in {"src", "href"}
    ]
    assert not addresses
    assert "url(" not in page
    assert "@import" not in page
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    assert f'http-equiv="Content-Security-Policy" content="{policy}"' in page


def test_hostile_texts_of_a_log_stay_texts(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script>\x1b[2J\u202e'
    log = busy(400, ip="x><img/src=x>", key=evil, path=f"/{evil}")
    page = page_of(tmp_path, log)
    assert Page(page).count("script", "img") == 0
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", page)
    assert "x&gt;&lt;img/src=x&gt;" in page


def test_every_chart_is_named_has_a_table_beside_it_and_few_marks(tmp_path: Path) -> None:
    page = page_of(tmp_path, busy())
    found = list(drawings(page))
    assert len(found) == 4 + 2  # the two that a phone shows instead
    for drawing in found:
        assert drawing.get("role") == "img"
        assert drawing.get("aria-label")
        assert sum(1 for _ in drawing.iter()) <= 5_000
    assert page.count("The same as a table") == 4


def test_marks_do_not_grow_with_the_log(tmp_path: Path) -> None:
    small, large = (page_of(tmp_path, busy(count)) for count in (4_000, 40_000))
    assert len(large) < 1.5 * len(small)


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    first = page_of(tmp_path, busy()).encode()
    again = write_report(tmp_path / "out").read_bytes()
    assert again == first


def test_a_run_without_refusals_says_so(tmp_path: Path) -> None:
    page = page_of(tmp_path, busy(20)).replace("\u202f", " ")
    assert "None of 20 requests would have been refused." in page
    assert "Who was locked out" not in page
    assert [drawing.get("aria-label") for drawing in drawings(page)] == [
        "Requests over time: 20 offered, 0 refused; clauses that refused: none"
    ] * 2


def test_unparsed_lines_are_named(tmp_path: Path) -> None:
    log = tmp_path / "a.csv"
    log.write_text(
        "time,ip,method,path\n1,192.0.2.1,GET,/a\nnever,192.0.2.1,GET,/b\n2,192.0.2.1,GET,/c\n"
    )
    page = page_of(tmp_path, log)
    assert "1 line left out" in page
    assert "a.csv:3: time must be like 2023-11-16T18:15:46.25Z" in page


def test_both_schemes_define_the_same_colours(tmp_path: Path) -> None:
    style = page_of(tmp_path, busy(20)).split("<style>")[1].split("</style>")[0]
    light, dark = (set(re.findall(r"(--[a-z0-9-]+):", part)) for part in style.split("@media")[:2])
    assert light == dark
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", style)) <= light


_ILLEGIBLE = """() => {
  const found = [];
  for (const chart of document.querySelectorAll(".chart")) {
    const svg = chart.querySelector("svg"), room = chart.getBoundingClientRect();
    if (!room.width) continue;
    if (chart.scrollWidth > chart.clientWidth) found.push("a picture scrolls");
    const scale = room.width / svg.viewBox.baseVal.width;
    const texts = [...svg.querySelectorAll("text")];
    const boxes = texts.map(each => each.getBoundingClientRect());
    texts.forEach((text, place) => {
      const box = boxes[place];
      if (parseFloat(getComputedStyle(text).fontSize) * scale < 9) {
        found.push("small: " + text.textContent);
      }
      if (box.left < room.left - 2 || box.right > room.right + 2) {
        found.push("cut: " + text.textContent);
      }
      boxes.slice(0, place).forEach((other, before) => {
        if (box.left < other.right && other.left < box.right
            && box.top + 4 < other.bottom && other.top + 4 < box.bottom) {
          found.push(`${texts[before].textContent} meets ${text.textContent}`);
        }
      });
    });
  }
  return found;
}"""
"""Says which pictures scroll, and which of their texts are small, cut or on another."""


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_opens_it_without_an_error_or_a_request(tmp_path: Path, scheme: str) -> None:
    page_of(tmp_path, busy())
    address = (tmp_path / "out" / "report.html").as_uri()
    complaints: list[str] = []
    requests: list[str] = []
    with chromium() as browser:
        tab = browser.new_page(
            viewport={"width": 1280, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(address)
        assert tab.locator("h1").inner_text() == "frame"
        assert tab.locator("svg:visible").count() == 4
        tab.locator("summary").first.click()
        assert tab.locator("details table").first.is_visible()
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(16, 19, 26)") == (scheme == "dark")
        overflow = tab.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert overflow is False
        tab.set_viewport_size({"width": 390, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth > innerWidth") is False
        assert tab.locator("svg:visible").count() == 4
        assert tab.evaluate(_ILLEGIBLE) == []
    assert complaints == []
    assert requests == [address]


def test_a_scenario_shows_its_question_the_runs_answer_and_the_files_own(tmp_path: Path) -> None:
    simulator.run("shared-office", fidelity="limits", out=tmp_path / "out")
    page = html.unescape((tmp_path / "out" / "report.html").read_text("utf-8"))
    scenario = load("shared-office")
    question, run, recorded = (
        re.findall(f'<p class="{name}">(.*?)</p>', page, re.DOTALL)
        for name in ("question", "answer", "recorded")
    )
    assert question == [scenario.question]
    totals = simulator.Result.load(tmp_path / "out").summary["totals"]
    said = run[0]
    assert f"{totals['refused']:,} of {totals['offered']:,} attempts" in said
    ended = totals["requests"] - totals["requests_pending"]
    assert f"Of {ended:,} requests that ended, retries included, " in said
    assert f"; {totals['requests_pending']} had not ended at the end of the run." in said
    assert recorded[0].endswith(scenario.answer)


def test_each_group_and_threshold_has_a_line_in_the_headline(tmp_path: Path) -> None:
    text = (
        WORKERS.format(rate="97/10s")
        + """
        [[thresholds]]
        that = "refused_share{client='workers'} <= 0.01"
        [[thresholds]]
        that = "latency_p99 < 1s"
    """
    )
    simulator.run(loads(text), fidelity="limits", out=tmp_path / "out")
    page = html.unescape((tmp_path / "out" / "report.html").read_text("utf-8"))
    page = page.replace("\u202f", " ")
    assert "<b>workers</b>: 31.3 % refused by LIM-CREATE at one address; fair share of this" in page
    assert "counter 6.6/s each; sent: workers " in page
    assert "<b>readers</b>: nothing is refused" in page
    assert '<li class="bad"><b>not met</b>' in page
    assert '<li class="good"><b>met</b> <span class="mono">latency_p99 < 1s</span>' in page
    tiles = re.findall(r"<dt>(.*?)</dt>.*?value\">(.*?)</div>.*?small\">(.*?)</div>", page)
    told = {name: (value, note) for name, value, note in tiles}
    assert told["Clients affected"] == ("3", "of 23")
    assert told["Addresses refused"] == ("1", "of 21")
    assert told["Locked out"] == ("1 min 16 s", "with at least one caller locked out")


def test_a_simulations_pictures_are_named_and_stand_as_tables_too(tmp_path: Path) -> None:
    simulator.run("everyday", fidelity="limits", out=tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    Page(page)
    labels = [str(drawing.get("aria-label")).replace("\u202f", " ") for drawing in drawings(page)]
    for said in (
        "first attempts, ",
        "attempts were admitted and not answered with an error",
        "How full the fullest counter of each rule was: LIM-CREATE 22 %, LIM-PUBLIC 100 %",
        "Refused share by address: 198.51.100.1 64.2 %, 198.51.100.2 35.8 %",
    ):
        assert any(said in label for label in labels), said
    headroom = next(d for d in drawings(page) if "How full" in str(d.get("aria-label")))
    tallest = [max(tall) for path in headroom.iter() if (tall := heights(path))]
    create, public = tallest[:2]
    assert create == pytest.approx(0.22 * public, rel=0.05), "22 % stands 22 % high"
    # Attempts and goodput share a table, and so do the two that a phone shows instead.
    assert page.count("as a table") == len(labels) - 3
    rows = simulator.Result.load(tmp_path / "out").requests
    firsts = f"{(rows['attempt'] == 1).sum():,}"
    assert any(label.startswith(f"Attempts over time: {firsts} first") for label in labels)


def found_in_runs(result: simulator.Result, metric: str) -> str:
    """Return a share of replications as the page has it."""
    each = result.replications.loc[metric]
    mean, low, high = (
        f"{100 * each[end]:.1f}".removesuffix(".0") + " %" for end in ("mean", "low", "high")
    )
    return f"{mean} ({low} to {high})"


def test_replications_show_intervals_spread_and_judgements(tmp_path: Path) -> None:
    result = simulator.run("shared-office", fidelity="limits", replications=4, out=tmp_path / "out")
    page = html.unescape((tmp_path / "out" / "report.html").read_text("utf-8"))
    assert "Over 4 runs</h2>" in page
    told = page.replace("\u202f", " ")
    share = found_in_runs(result, "refused_share")
    assert f'<p class="answer">Over 4 runs {share} of the attempts are refused on average' in told
    assert "The run of seed 7: 2,529 of 3,153 attempts (80.2 %) were refused" in told
    browsers = found_in_runs(result, "refused_share{client='browsers'}")
    assert f"<b>browsers</b>: {browsers} refused by LIM-PUBLIC at one address" in told
    (threshold,) = result.summary["replications"]["thresholds"]
    assert f"<b>{threshold['verdict']}</b>" in page
    found = result.summary["replications"]
    values = [run["line"]["refused_share"] for run in found["runs"]]
    spread = found["spread"]["refused_share"]
    assert (spread["least"], spread["most"]) == (min(values), max(values))
    assert spread["deviation"] == pytest.approx(pd.Series(values).std())
    (drawing,) = (d for d in drawings(page) if "intervals of the mean" in str(d.get("aria-label")))
    dots = [path for path in drawing.iter() if path.get("class") == "dots"]
    assert all(path.get("d", "").count("M") == 4 for path in dots)
    means = {line["name"]: line["mean"] for line in spread_rows(result.summary)}
    assert f">refused share</th><td>{means['refused_share']}</td>" in page


def test_the_page_the_charts_and_the_explorer_have_the_same_colours(tmp_path: Path) -> None:
    style = page_of(tmp_path, busy(20)).split("<style>")[1].split("@media")[0]
    found = dict(re.findall(r"--(c[0-9]|calm|turned): (#[0-9a-f]{6})", style))
    assert tuple(found[f"c{place}"] for place in range(10)) == CLAUSES
    assert (found["calm"], found["turned"]) == (ADMITTED, REFUSED)
    drawn = picture({"x": simulator.run("retry-storm", fidelity="limits")})
    assert re.findall(r"fill: (#[0-9a-f]{6})", drawn) == [ADMITTED, CLAUSES[0]]


def test_a_scenario_without_a_written_answer_shows_none(tmp_path: Path) -> None:
    text = """
        duration = "10s"
        tenants = [{ name = "t" }]
        applications = [{ name = "a", tenant = "t", kind = "public" }]
        clients = [{ name = "c", application = "a", think = { kind = "constant", value = "1s" } }]
    """
    simulator.run(loads(text), fidelity="limits", out=tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert 'class="recorded"' not in page
    assert 'class="question"' not in page


def test_blocks_from_the_warm_up_count_alike_in_the_table_and_in_its_rows(tmp_path: Path) -> None:
    text = """
        duration = "5m"
        warm_up = "1m"
        tenants = [{ name = "t" }]
        applications = [{ name = "a", tenant = "t", kind = "public" }]
        [[clients]]
        name = "early"
        application = "a"
        think = { kind = "constant", value = "100ms" }
        stop = "10s"
        [rules.LIM-PUBLIC]
        block = "2m"
        [[clients]]
        name = "on"
        application = "a"
        start = "50s"
        think = { kind = "constant", value = "900ms" }
    """
    found = simulator.run(loads(text), fidelity="limits", out=tmp_path / "out")
    findings = gather(found.batches(), found.summary, bins=10)
    by_rows: dict[str, int] = {}
    for who, refusals in findings.shut_out.items():
        by_rows[who.clause] = by_rows.get(who.clause, 0) + refusals.shut_ns
    blocked = {line["clause"]: line["blocked_ns"] for line in found.summary["clauses"]}
    assert by_rows["LIM-PUBLIC"] == blocked["LIM-PUBLIC"] > 0
    assert [refusals.refused for refusals in findings.carried.values()] == [0]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert page.count("<td>warm-up</td><td>warm-up</td>") == 1
