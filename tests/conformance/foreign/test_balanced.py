"""Several `engine serve` behind HAProxy, each with counters of its own: the rate is exceeded.

LIM-SEARCH, LIM-READ. From outside, counters per node look like a higher rate: nothing is said of
nodes.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from _pytest.outcomes import Failed, Skipped

from conformance.context.verdicts import Verdict
from conformance.runner.runner import Options, Run
from conformance.target import Target, TargetKey
from tests.conformance.foreign import _servers
from tests.conformance.foreign._servers import balanced, watching

COUNTS = (1, 2, 4)


def _half(target: Target, place: int) -> Target:
    """Return a target with every other key and address, so that two runs share no counter."""
    by_role: dict[str, list[TargetKey]] = {}
    for key in target.keys:
        by_role.setdefault(key.role, []).append(key)
    keys = [own[place::2] if len(own) > 1 else own for own in by_role.values()]
    sources = target.sources[place::2]
    return dataclasses.replace(target, keys=tuple(itertools.chain(*keys)), sources=sources)


def _said(target: Target, port: int, rule_id: str, half: int) -> tuple[Verdict, str]:
    """Return the worst verdict on a row of what listens at a port, and all that is said of it."""
    target = _half(target, half)
    served = dataclasses.replace(target, base_url=f"http://127.0.0.1:{port}")
    run = Run(served, Options(checks=(f"limits.{rule_id}",), seed=3))
    run.execute()
    found = [one for one in run.findings if one.clause == rule_id]
    return max(one.verdict for one in found), "\n".join(one.message for one in found)


@pytest.mark.slow
def test_counters_per_node_fail(tmp_path: Path) -> None:
    """All deployments at once, as the runs mostly wait.

    Behind one node, or by source, nothing is wrong to see.
    """
    with (
        watching() as untold,
        ExitStack() as stack,
        ThreadPoolExecutor(2 * len(COUNTS)) as threads,
    ):
        by_turns, by_source = {}, {}
        for count in COUNTS:
            target, ports = stack.enter_context(balanced(tmp_path / f"nodes{count}", count))
            by_turns[count] = threads.submit(_said, target, ports["roundrobin"], "LIM-SEARCH", 0)
            by_source[count] = threads.submit(_said, target, ports["source"], "LIM-READ", 1)
        for future in (by_turns[1], *by_source.values()):
            verdict, says = future.result()
            assert verdict is not Verdict.FAIL, says
        open_ = []
        for count in COUNTS[1:]:
            verdict, says = by_turns[count].result()
            if verdict is Verdict.INCONCLUSIVE:
                open_.append(f"{count} nodes: {says}")
                continue
            assert verdict is Verdict.FAIL, says
            assert "node" not in says
        if open_:
            untold("; ".join(open_))


def test_what_is_not_told_on_a_calm_machine_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_servers, "_PAUSE_S", 3_600.0)
    for load, raised in ((0.0, Failed), (999.0, Skipped)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, load, load))
        with watching() as untold, pytest.raises(raised, match="2 nodes"):
            untold("2 nodes")
