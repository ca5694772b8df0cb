"""Who a request of a scenario is for the limits: the same in every fidelity."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import LimitTable
from simulator.play.simulation import FIDELITIES, Fidelity
from simulator.scenario import load
from simulator.study.runs import run

SCENARIO = """
duration = "1s"
limit_tables = { gold = "gold.toml" }
[[tenants]]
name = "t"
quotas = { "Rate Limit" = "gold" }
[[proxies]]
name = "p"
tenant = "t"
destination = { kind = "constant", value = "1ms" }
[[clients]]
name = "c"
loop = "open"
arrivals = { kind = "constant", rate = "10/1s" }
service = { kind = "constant", value = "1ms" }
mix = [{ request = "POST /proxy", proxy = "p", via = "key" }]
"""


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_without_a_key_the_proxys_tenant_names_the_table(
    tmp_path: Path, fidelity: Fidelity
) -> None:
    """QUO-RATE, D-PROXY-RULES: the table `gold` lets 3 in, the default one would let 10 in."""
    gold = LimitTable.default().replace_rule("LIM-PROXY-KEY", rate="3/10s")
    (tmp_path / "gold.toml").write_text(gold.to_toml())
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    rows = run(load(tmp_path / "scenario.toml"), fidelity=fidelity).requests
    assert list(rows["rule"].isna()) == [True] * 3 + [False] * 7
