"""What the simulated chapters claim holds for other seeds and sizes than those that are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jupytext
import pytest

from notebooks.course import FOLDER, sources

SIMULATED = sorted(
    source.stem
    for source in sources()
    if 'tags=["parameters"]' in source.read_text(encoding="utf-8")
)


def play(source: Path, **parameters: Any) -> None:
    """Run a notebook's cells in this process, its parameters replaced after their cell."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in jupytext.read(source).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, source.name, "exec"), names)  # reason: our own cells
        if "parameters" in cell.metadata.get("tags", ()):
            assert set(parameters) <= set(names), "every parameter is one of the notebook's"
            names.update(parameters)


OTHERS = (
    ("10_algorithms", {"SEED": 5_000}),
    ("12_retry_storms", {"SEED": 5_000, "ATTEMPTS": 12}),
    ("13_one_office_ip", {"SEED": 5_000, "RUNS": 24}),
    ("14_proxies_reactors", {"SEED": 5_000, "RUNS": 8}),
    ("15_month_end", {"SEED": 5_000}),
    ("17_fitting_a_log", {"SEED": 5_000}),
    ("18_finding_capacity", {"SEED": 5_000}),
    ("19_limit_explorer", {"SEED": 5_000}),
    ("20_advice", {"SEED": 5_000}),
    ("21_several_nodes", {"SEED": 5_000}),
    ("22_sweep_on_dask", {"SEED": 5_000, "RUNS": 8}),
)


@pytest.mark.slow
@pytest.mark.parametrize(("stem", "parameters"), OTHERS, ids=[stem for stem, _ in OTHERS])
def test_the_claims_hold_for_other_seeds(stem: str, parameters: dict[str, Any]) -> None:
    play(FOLDER / f"{stem}.py", **parameters)


def test_every_simulated_chapter_is_played_with_other_seeds() -> None:
    assert [stem for stem, _ in OTHERS] == SIMULATED
