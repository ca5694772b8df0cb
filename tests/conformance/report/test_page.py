"""The report page in a real browser: it opens without an error, asks nobody, and hides no text."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.context.verdicts import Moment
from conformance.faults import fault_of
from conformance.report.page import picture
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from tests.chromium import chromium, needs_chromium


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that has found something."""
    out = tmp_path_factory.mktemp("run")
    bad = deploy(engine=fault_of("mask-last-four-first").engine)
    asked = Options(seed=1, select=("REC-CARD-MASK", "TOK-PLAIN", "QUO-RATE"))
    report = Run(bad.target, asked, transport=bad.transport, out=out).execute()
    report.save(out)
    text = (out / "report.html").read_text("utf-8")
    assert not [key.value for key in bad.target.keys if key.value and key.value in text]
    return out / "report.html"


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_opens_it_without_an_error_or_a_request(
    page: Path, width: int, scheme: str
) -> None:
    complaints: list[str] = []
    requests: list[str] = []
    with chromium() as browser:
        tab = browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(page.as_uri())
        assert tab.locator("h1").inner_text() == "http://in-process.example"
        assert "does not conform: REC-CARD-MASK" in tab.locator(".answer").inner_text()
        assert tab.locator("#REC-CARD-MASK pre").first.is_visible(), "a finding lies open"
        closed = tab.locator("#TOK-PLAIN pre").first
        assert not closed.is_visible()
        tab.locator("summary.many").first.click()
        tab.locator(".fold > summary").first.click()
        tab.locator("#TOK-PLAIN summary").click()
        assert closed.is_visible()
        seen = ("#REC-CARD-MASK", "#QUO-RATE", "#TOK-PLAIN")
        for shown, ids in (
            ("show-failed", {"#REC-CARD-MASK"}),
            ("show-open", {"#QUO-RATE"}),
            ("show-passed", {"#TOK-PLAIN"}),
            ("show-all", set(seen)),
            ("family-REC", {"#REC-CARD-MASK"}),
            ("family-all", set(seen)),
        ):
            tab.locator(f"#{shown}").check()
            assert {one for one in seen if tab.locator(one).is_visible()} == ids, shown
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = tab.evaluate("getComputedStyle(document.body).color")
        assert (_light(paper) > _light(ink)) == (scheme == "light")
    assert complaints == []
    assert requests == [page.as_uri()]


def _light(colour: str) -> int:
    """Return how light a colour is, of `rgb(16, 19, 26)`."""
    return sum(int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])


def test_counts_of_series_that_lie_close_together_are_one_text() -> None:
    """Counts were written over each other, and cut off at the right edge."""
    second = 1_000_000_000
    moments = [
        Moment(at_ns=0, until_ns=1, status=200, count=25, key="a"),
        Moment(at_ns=5 * second, until_ns=5 * second + 1, status=200, count=38, key="a"),
        Moment(at_ns=5 * second + 2, until_ns=5 * second + 3, status=403, count=6, key="a"),
        Moment(at_ns=10 * second, until_ns=10 * second + 1, status=200, count=35, key="a"),
    ]
    marks = picture(moments)["marks"]
    assert [one["text"] for one in marks] == ["25", "38, 6", "", "35"]
    assert [one["anchor"] for one in marks] == ["start", "start", "start", "end"]


@pytest.mark.parametrize(
    ("series", "texts"),
    [
        ([(0, 2), (15, 3)], ["2, 3", ""]),
        ([(0, 2), (16, 3)], ["2", "3"]),
        ([(0, 200), (31, 2), (55, 4)], ["200, 2, 4", "", ""]),
        ([(0, 200), (31, 2), (56, 4)], ["200, 2", "", "4"]),
        ([(0, 2), (5, 1), (15, 3)], ["2, 3", "1", ""]),
    ],
)
def test_a_count_is_written_where_it_has_room(
    series: list[tuple[int, int]], texts: list[str]
) -> None:
    """A character takes 8; a single request is drawn as a point, without a count."""
    millisecond = 1_000_000
    moments = [Moment(at_ns=at * millisecond, status=200, count=count) for at, count in series]
    marks = picture([*moments, Moment(at_ns=736 * millisecond, status=200)])["marks"]
    assert [mark["x"] - 12 for mark in marks] == [*(at for at, _ in series), 736]
    assert [mark["text"] for mark in marks[:-1]] == texts


@pytest.mark.parametrize(
    ("span_s", "texts"),
    [
        *(
            (8 * step_s, [f"{step_s * number:g} s" for number in range(9)])
            for step_s in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300)
        ),
        (0.07, ["0 s", "0.01 s", "0.02 s", "0.03 s", "0.04 s", "0.05 s", "0.06 s", "0.07 s"]),
        (60, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s", "60 s"]),
        (420, [f"{60 * minute} s" for minute in range(8)]),
        (8_000, [f"{1_000 * part} s" for part in range(9)]),
    ],
)
def test_the_axis_of_a_timeline_has_few_round_ticks(span_s: float, texts: list[str]) -> None:
    end_ns = int(span_s * 1_000_000_000)
    begin_ns = 90_000_000_000
    middle_ns = begin_ns + end_ns // 2
    shown = [
        Moment(at_ns=begin_ns, status=200),
        Moment(at_ns=begin_ns, until_ns=middle_ns, status=200),
        Moment(at_ns=begin_ns + end_ns, status=429),
    ]
    drawn = picture(shown)
    whole = drawn["width"] - 24
    assert [mark["x"] for mark in drawn["marks"]] == [12, 12, 12 + whole], "the whole width"
    assert [mark["width"] for mark in drawn["marks"]] == [3, whole / 2, 3]
    assert [tick["text"] for tick in drawn["ticks"]] == texts
    for tick in drawn["ticks"]:
        share = float(tick["text"].removesuffix(" s")) / span_s
        assert tick["x"] == pytest.approx(12 + share * whole, abs=0.11)


def test_what_is_refused_has_its_number_above_and_what_is_let_in_below() -> None:
    """Both stand in one row and would be written over each other."""
    moments = [Moment(at_ns=place, status=status) for place, status in enumerate((200, 429, 503))]
    drawn = picture(moments)
    above = [mark["label"] < mark["y"] for mark in drawn["marks"]]
    assert above == [False, True, False]
    assert [mark["kind"] for mark in drawn["marks"]] == ["admitted", "refused", "lost"]
    assert len(drawn["rows"]) == 1
    two = picture([*moments, Moment(at_ns=3, status=200, key="another")])
    first, second = (row["y"] for row in two["rows"])
    assert [mark["y"] for mark in two["marks"]] == [first + 26] * 3 + [second + 26]
    heights = [(mark["y"], mark["label"]) for mark in two["marks"]]
    assert all(first < each < second for pair in heights[:3] for each in pair), "in its row"
    assert all(second < each < two["axis"] < two["height"] for each in heights[3])
    assert two["height"] - drawn["height"] == second - first
