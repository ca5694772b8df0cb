"""Random streams: the published generator word for word, and apart from one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from simulator.traffic.draws import Stream, stream_number
from tests.oracles.streams import philox4x64

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
