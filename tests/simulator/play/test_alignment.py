"""D-ALIGN: windows start at multiples of their length since the Unix epoch, whatever the start.

A public key sends one request a second from 00:00:20 on (LIM-PUBLIC, 50 a minute): the first window
ends after 40 s and is not full, the next one is full 50 s later.
"""

from __future__ import annotations

import pandas as pd
import pytest

from engine import Engine, ManualClock, Profile, Request
from simulator.play.simulation import FIDELITIES, Fidelity
from simulator.scenario import loads
from simulator.study.replay import replay
from simulator.study.runs import run

SECOND_NS = 1_000_000_000
START = "2026-03-02T00:00:20Z"
START_NS = pd.Timestamp(START).value
REFUSED = [*range(90, 100), *range(150, 160)]
PROFILE = Profile().replace(limits={"algorithm": "fixed-window"})

SCENARIO = f"""
duration = "3m"
start_time = {START}
[choices.limits]
algorithm = "fixed-window"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = {{ kind = "constant", rate = "1/1s" }}
service = {{ kind = "constant", value = "1ms" }}
"""


def refused(rows: pd.DataFrame) -> list[int]:
    return [t // SECOND_NS for t in rows["t_ns"][rows["outcome"] == "blocked"]]


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_of_a_scenario_from_its_start_time(fidelity: Fidelity) -> None:
    assert refused(run(loads(SCENARIO), fidelity=fidelity).requests) == REFUSED


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_of_a_replay_by_the_times_of_the_log(fidelity: Fidelity) -> None:
    log = pd.DataFrame({"t_ns": [START_NS + second * SECOND_NS for second in range(180)]})
    log = log.assign(ip="192.0.2.1", method="POST", path="/tokenize")
    assert refused(replay(log, profile=PROFILE, fidelity=fidelity).requests) == REFUSED


def test_of_the_engine_by_its_clock_and_by_no_other_request() -> None:
    clock = ManualClock(5, wall_start_ns=START_NS)
    engine = Engine(profile=PROFILE, clock=clock, seed=7)
    application = engine.create_application(engine.create_tenant("Acme"), "shop", kind="public")
    key = engine.create_key(application)
    statuses = []
    for _ in range(180):
        statuses.append(
            engine.handle(Request("POST", "/tokenize", key=key, ip="192.0.2.1", body=""))
        )
        clock.advance_ns(SECOND_NS)
    assert [n for n, answer in enumerate(statuses) if answer.status == 429] == REFUSED
