"""The names that a fitted scenario gives to the parties of a log."""

from __future__ import annotations

import pandas as pd

import simulator
from engine.files import parse_toml
from simulator.logs import LogMap
from simulator.study.fit import Fit

_MAP = """
time = { field = "t_ns", unit = "ns" }
key = "key"
tenant = "tenant"
application = "application"
"""


REQUEST = {"ip": "192.0.2.1", "method": "POST", "path": "/tokenize"}


def _fit(tenants: tuple[str, ...]) -> Fit:
    """Fit a log of tenants that each have an application `web`."""
    rows = [
        {"t_ns": at * 10**9, "key": tenant, "tenant": tenant, "application": "web", **REQUEST}
        for at in range(30)
        for tenant in tenants
    ]
    log_map = LogMap.from_document(parse_toml(_MAP, "map.toml"))
    return simulator.fit(pd.DataFrame(rows), map=log_map, judged=False)


def test_tenants_without_a_letter_that_a_scenario_takes_are_told_apart() -> None:
    found = _fit(("日本", "中国"))
    assert [tenant.name for tenant in found.scenario.tenants] == ["tenant", "tenant-1"]
    assert [each.tenant for each in found.scenario.applications] == ["tenant", "tenant-1"]


def test_applications_of_one_name_are_told_apart() -> None:
    """Two tenants may call an application the same; a scenario's names are unique."""
    found = _fit(("one", "two"))
    applications = [(each.tenant, each.name) for each in found.scenario.applications]
    assert applications == [("one", "web"), ("two", "web-2")]
    assert found.groups.index.tolist() == ["web", "web-2"]
    assert [group.applications for group in found.scenario.clients] == [("web",), ("web-2",)]
