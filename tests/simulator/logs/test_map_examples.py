"""The three maps of docs/simulator.md read the logs that stand above them."""

import re
from pathlib import Path

import pytest

from engine.files import parse_toml
from simulator.logs import LogMap
from tests.simulator.logs.test_tools import read

_DOCS = Path(__file__).parents[3] / "docs" / "simulator.md"
_EXAMPLES = re.findall(
    r"```text\n(.*?)```\n\n```toml\n(.*?)```",
    _DOCS.read_text("utf-8").split("### Map")[1],
    re.DOTALL,
)
SECOND_NS = 10**9
AT_NS = 1_749_471_000 * SECOND_NS


@pytest.mark.parametrize("example", range(3))
def test_a_map_of_the_documents_reads_its_log(tmp_path: Path, example: int) -> None:
    assert len(_EXAMPLES) == 3
    log, toml = _EXAMPLES[example]
    (tmp_path / "access.log").write_text(log, "utf-8")
    log_map = LogMap.from_document(parse_toml(toml, "map.toml"))
    _, requests, reading = read(tmp_path / "access.log", map=log_map)
    after_ns = [(0, SECOND_NS), (SECOND_NS // 8, SECOND_NS // 4), (0, SECOND_NS)][example]
    assert requests == [
        (AT_NS + after_ns[0], "192.0.2.7", "POST", "/tokenize"),
        (AT_NS + after_ns[1], "192.0.2.8", "GET", "/tokens"),
    ]
    assert reading["lines_skipped"] == 0
