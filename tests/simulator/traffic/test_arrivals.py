"""Arrivals: exact where they are exact, and of the right law where they are drawn."""

from __future__ import annotations

from itertools import islice, pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from engine.errors import InputError
from simulator.play import simulate, template_for
from simulator.scenario import loads
from simulator.scenario.draws import OnOffArrivals
from simulator.traffic.arrivals import Piece, constant, on_off, poisson, varying
from simulator.traffic.draws import Stream
from simulator.traffic.population import populate
from simulator.traffic.sampling import ReplayedInstants, arrivals_of, begins_on

S = 1_000_000_000


@given(st.integers(1, 1_000), st.integers(1, 10**12), st.integers(0, 10**12))
def test_constant_arrivals_are_exact(limit: int, window_ns: int, start_ns: int) -> None:
    found = list(islice(constant(limit, window_ns, start_ns=start_ns), limit + 1))
    assert found == [start_ns + k * window_ns // limit for k in range(limit + 1)]
    assert found[-1] - found[0] == window_ns


def test_poisson_gaps_are_exponential() -> None:
    found = list(islice(poisson(Stream(1, "p"), 50, 10 * S), 5_000))
    gaps = np.diff([0, *found])
    assert stats.kstest(gaps, stats.expon(scale=0.2e9).cdf).pvalue > 0.001


def test_a_varying_rate_is_followed_piece_by_piece() -> None:
    pieces = [Piece(100 * S, 0.0, 100 / S), Piece(50 * S, 0.0, 0.0), Piece(100 * S, 50 / S, 50 / S)]
    found = np.array(list(varying(Stream(2, "v"), pieces)))
    ramp = found[found < 100 * S]
    assert not ((found >= 100 * S) & (found < 150 * S)).any()
    flat = found[found >= 150 * S]
    # Counts of a Poisson process: mean ± 4 standard deviations.
    assert abs(len(ramp) - 5_000) < 4 * 5_000**0.5
    assert abs(len(flat) - 5_000) < 4 * 5_000**0.5
    assert stats.kstest(ramp, lambda t: (t / (100 * S)) ** 2).pvalue > 0.001
    assert stats.kstest(flat, stats.uniform(150 * S, 100 * S).cdf).pvalue > 0.001


def test_on_off_bursts_have_the_mean_of_their_phases() -> None:
    found = list(
        takewhile(
            lambda t: t < 20_000 * S,
            on_off(
                Stream(3, "s"),
                Stream(3, "a"),
                on=(10, S),
                off=None,
                on_mean_ns=2 * S,
                off_mean_ns=6 * S,
            ),
        )
    )
    assert len(found) == pytest.approx(20_000 * 10 * 2 / 8, rel=0.1)
    assert all(a <= b for a, b in pairwise(found))


def test_bursts_may_begin_in_either_state_by_its_share_of_the_time() -> None:
    scenario = loads(
        """
        duration = "2m"
        [[tenants]]
        name = "t"
        [[clients]]
        name = "c"
        count = 2000
        loop = "open"
        arrivals = { kind = "on-off", on_rate = "1/1s", on = "20s", off = "1m", begin = "either" }
        """
    )
    arrivals = scenario.clients[0].arrivals
    assert isinstance(arrivals, OnOffArrivals)
    clients = populate(scenario, 7).clients
    on = sum(begins_on(arrivals, client.stream) for client in clients)
    assert abs(on - 500) < 4 * (2000 * 0.25 * 0.75) ** 0.5
    assert simulate(scenario, seed=7).table == simulate(scenario, seed=7, fidelity="compiled").table
    assert template_for(scenario) is None  # the first states depend on the seed


def _daily(start_time: str) -> list[int]:
    scenario = loads(
        f"""
        duration = "1d"
        start_time = {start_time}
        [[tenants]]
        name = "t"
        [[clients]]
        name = "c"
        loop = "open"
        [clients.arrivals]
        kind = "daily"
        rate = "10000/1d"
        hours = [0,0,0,0,0,0, 0,0,0,0,0,0, 1,0,0,0,0,0, 0,0,0,0,0,0]
        """
    )
    client = populate(scenario, 7).clients[0]
    arrivals = client.group.arrivals
    assert arrivals is not None
    instants = arrivals_of(
        arrivals,
        client.stream,
        start_ns=0,
        start_time_ns=scenario.start_time_ns,
        replayed_ns=ReplayedInstants().of,
    )
    return list(islice(instants, 2_000))


@pytest.mark.parametrize(
    ("start_time", "first_hour"),
    [
        ("2026-01-01T00:00:00Z", 12),
        ("2026-01-01T06:30:00Z", 5.5),
        ("2026-01-01T12:30:00Z", 0),
        ("2026-01-01T13:00:00Z", 23),
    ],
)
def test_a_day_follows_the_clock(start_time: str, first_hour: float) -> None:
    hours = np.array(_daily(start_time)) / (3_600 * S)
    assert first_hour <= hours[0] < first_hour + 0.01
    assert hours[-1] <= first_hour + 1


def _replay(folder: Path, text: str, **more: object) -> list[int]:
    (folder / "arrivals.txt").write_text(text)
    extra = "".join(f"{name} = {value!r}\n" for name, value in more.items())
    scenario = loads(
        f"""
        duration = "1d"
        [[tenants]]
        name = "t"
        [[clients]]
        name = "c"
        loop = "open"
        [clients.arrivals]
        kind = "replay"
        file = "arrivals.txt"
        {extra}
        """,
        folder=folder,
    )
    return list(ReplayedInstants().of(scenario.clients[0].arrivals))  # type: ignore[arg-type] # reason: it is a replay


def test_replayed_instants_are_sorted_and_exact(tmp_path: Path) -> None:
    assert _replay(tmp_path, "3.5\n# a comment\n\n1.0000001\n") == [0, 2_499_999_900]
    iso = "2026-01-01T00:00:02Z\n2026-01-01 00:00:01.0000001\n"
    assert _replay(tmp_path, iso, speed=3) == [0, 999_999_900 // 3]
    assert _replay(tmp_path, "at,n\n5,1\n4,2\n", column="at") == [0, S]


def test_a_bad_file_of_arrivals_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"arrivals\.txt:2:1: time must"):
        _replay(tmp_path, "1\nnoon\n")
    with pytest.raises(InputError, match="must hold at least one arrival time"):
        _replay(tmp_path, "# nothing\n")
    with pytest.raises(InputError, match="column = 'when' must be in the header"):
        _replay(tmp_path, "at\n1\n", column="when")
