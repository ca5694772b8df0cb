"""Draws: scipy's distributions are the oracle, and the rounding is one stated rule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from engine.errors import InputError
from simulator.play.simulation import simulate, template_for
from simulator.scenario import loads
from simulator.scenario.draws import OnOffArrivals
from simulator.traffic import draws
from simulator.traffic.draws import Stream, stream_number
from simulator.traffic.population import populate
from simulator.traffic.sampling import begins_on, instants_of, replayed_ns
from tests.oracles.streams import philox4x64

_OPEN = st.floats(2.0**-53, 1 - 2.0**-53)


@given(_OPEN)
def test_the_normal_quantile_is_scipys(u: float) -> None:
    assert math.isclose(draws.normal(u), float(stats.norm.ppf(u)), rel_tol=4e-15, abs_tol=1e-16)


@given(st.floats(-700, 700))
def test_the_exponential_function_is_exact_to_two_places(x: float) -> None:
    exact = math.exp(x)
    assert abs(draws.raise_e(x) - exact) <= 2 * math.ulp(exact)


@pytest.mark.parametrize(
    ("draw", "oracle"),
    [
        (lambda u: draws.exponential_ns(u, 2e9), stats.expon(scale=2e9)),
        (lambda u: draws.lognormal_ns(u, 10**9, 0.5), stats.lognorm(0.5, scale=1e9)),
        (lambda u: draws.pareto_ns(u, 10**9, 1.5), stats.pareto(1.5, scale=1e9)),
        (lambda u: draws.uniform_ns(u, 10**9, 3 * 10**9), stats.uniform(1e9, 2e9)),
    ],
)
def test_a_duration_has_its_distribution(draw: object, oracle: object) -> None:
    stream = Stream(11, "oracle")
    sample = [draw(stream.uniform()) for _ in range(5_000)]  # type: ignore[operator] # reason: parametrised
    assert all(isinstance(value, int) for value in sample)
    assert stats.kstest(sample, oracle.cdf).pvalue > 0.001  # type: ignore[attr-defined] # reason: parametrised


@given(st.floats(0, 1e15))
def test_a_duration_is_the_nearest_nanosecond(duration: float) -> None:
    assert abs(draws.nearest_ns(duration) - duration) <= 0.5


def test_no_duration_leaves_its_bounds() -> None:
    assert draws.nearest_ns(-5.0) == 0
    assert draws.nearest_ns(0.5) == 1
    assert draws.nearest_ns(1e30) == draws.LONGEST_NS
    assert draws.pareto_ns(1 - 2.0**-53, 10**12, 0.05) == draws.LONGEST_NS


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.1, 2.0])
def test_zipf_ranks_have_scipys_shares(exponent: float) -> None:
    count = 50
    table = draws.cumulative_weights(draws.zipf_weights(count, exponent))
    stream = Stream(3, f"zipf {exponent}")
    seen = Counter(draws.categorical(stream.uniform(), table) for _ in range(20_000))
    shares = stats.zipfian(exponent, count).pmf(np.arange(1, count + 1))
    observed = [seen[rank] for rank in range(count)]
    assert stats.chisquare(observed, shares * 20_000).pvalue > 0.001


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), _OPEN)
def test_a_choice_of_weight_zero_is_never_made(weights: list[float], u: float) -> None:
    if sum(weights) > 0:
        assert weights[draws.categorical(u, draws.cumulative_weights(weights))] > 0


# --- random streams ------------------------------------------------------------------------------


_WORD = st.integers(0, 2**64 - 1)


@given(_WORD, _WORD, st.integers(0, 2**256 - 9))
@settings(max_examples=200)
def test_the_words_are_those_of_numpy(seed: int, number: int, counter: int) -> None:
    parts = [counter >> shift & (2**64 - 1) for shift in (0, 64, 128, 192)]
    source = np.random.Philox(
        key=np.array([seed, number], dtype=np.uint64), counter=np.array(parts, dtype=np.uint64)
    )
    words = source.random_raw(8).tolist()
    blocks = [philox4x64((counter + step) % 2**256, (seed, number)) for step in (1, 2)]
    assert words == [word for block in blocks for word in block]


def test_the_words_are_those_of_the_paper() -> None:
    # The known answers that the authors of Philox publish for counter and key of zeros and of ones.
    assert philox4x64(0, (0, 0)) == (
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    )
    ones = 2**64 - 1
    assert philox4x64(2**256 - 1, (ones, ones)) == (
        0x87B092C3013FE90B,
        0x438C3C67BE8D0224,
        0x9CC7D7C69CD777B6,
        0xA09CAEBF594F0BA0,
    )


@pytest.mark.parametrize("count", [1, 7, 8, 9, 2_000, 5_000])
def test_a_stream_hands_out_its_words_in_order(count: int) -> None:
    stream = Stream(7, "browsers/3/think")
    key = (7, stream_number("browsers/3/think"))
    drawn = [stream.uniform() for _ in range(count)]
    last = count - 1
    word = philox4x64(last // 4 + 1, key)[last % 4]
    assert drawn[-1] == ((word >> 12) + 0.5) * 2.0**-52
    assert all(0.0 < u < 1.0 for u in drawn)


def test_the_numbers_are_even_and_streams_do_not_meet() -> None:
    one, other = Stream(7, "a/0/think"), Stream(7, "a/1/think")
    first = [one.uniform() for _ in range(4_000)]
    second = [other.uniform() for _ in range(4_000)]
    assert stats.kstest(first, "uniform").pvalue > 0.001
    assert abs(stats.pearsonr(first, second).statistic) < 0.06
    assert not set(first) & set(second)


# --- arrivals ------------------------------------------------------------------------------------


S = 1_000_000_000


def _instants(arrivals: str, *, start: str = "0s", seed: int = 7, more: str = "") -> Iterator[int]:
    """Return the instants of one client, whose process runs for a day."""
    scenario = loads(
        f"""
        duration = "1d"
        {more}
        [[tenants]]
        name = "t"
        [[clients]]
        name = "c"
        loop = "open"
        start = "{start}"
        arrivals = {arrivals}
        """
    )
    (client,) = populate(scenario, seed).clients
    return instants_of(client.group, scenario)(client)


@given(st.integers(1, 1_000), st.integers(1, 10**12), st.integers(0, 10**12))
def test_constant_arrivals_are_exact(limit: int, window_ns: int, start_ns: int) -> None:
    instants = _instants(f'"{limit}/{window_ns}ns"', start=f"{start_ns}ns")
    found = list(islice(instants, limit + 1))
    assert found == [start_ns + k * window_ns // limit for k in range(limit + 1)]
    assert found[-1] - found[0] == window_ns


def test_poisson_gaps_are_exponential() -> None:
    found = list(islice(_instants('{ kind = "poisson", rate = "50/10s" }'), 5_000))
    gaps = np.diff([0, *found])
    assert stats.kstest(gaps, stats.expon(scale=0.2e9).cdf).pvalue > 0.001


def test_a_varying_rate_is_followed_piece_by_piece() -> None:
    ramp_up = '{ kind = "ramp", from = "0/1s", to = "100/1s", over = "100s" }'
    ramp = np.array(list(takewhile(lambda t: t < 100 * S, _instants(ramp_up))))
    steps = '[{ rate = "0/1s" }, { at = "50s", rate = "50/1s" }]'
    flat = takewhile(lambda t: t < 150 * S, _instants(f'{{ kind = "steps", steps = {steps} }}'))
    found = np.array(list(flat))
    assert found.min() >= 50 * S
    # Counts of a Poisson process: mean ± 4 standard deviations.
    assert abs(len(ramp) - 5_000) < 4 * 5_000**0.5
    assert abs(len(found) - 5_000) < 4 * 5_000**0.5
    assert stats.kstest(ramp, lambda t: (t / (100 * S)) ** 2).pvalue > 0.001
    assert stats.kstest(found, stats.uniform(50 * S, 100 * S).cdf).pvalue > 0.001


def test_on_off_bursts_have_the_mean_of_their_phases() -> None:
    bursts = _instants('{ kind = "on-off", on_rate = "10/1s", on = "2s", off = "6s" }')
    found = list(takewhile(lambda t: t < 20_000 * S, bursts))
    assert len(found) == pytest.approx(20_000 * 10 * 2 / 8, rel=0.1)
    assert all(a <= b for a, b in pairwise(found))


@pytest.mark.slow
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
    clients = populate(scenario, 7).clients
    bursts = scenario.clients[0].arrivals
    assert isinstance(bursts, OnOffArrivals)
    on = sum(begins_on(bursts, client) for client in clients)
    assert abs(on - 500) < 4 * (2000 * 0.25 * 0.75) ** 0.5
    assert simulate(scenario, seed=7).table == simulate(scenario, seed=7, fidelity="compiled").table
    assert template_for(scenario) is None  # the first states depend on the seed


def _daily(start_time: str) -> list[int]:
    hours = [0] * 12 + [1] + [0] * 11
    day = f'{{ kind = "daily", rate = "10000/1d", hours = {hours} }}'
    return list(islice(_instants(day, more=f"start_time = {start_time}"), 2_000))


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
    return replayed_ns(scenario.clients[0].arrivals)  # type: ignore[arg-type] # reason: it is a replay


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
