"""Random streams: counter-based, named, and independent of one another.

Philox4x64-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11)
turns a counter and a key into four 64-bit words; there is no state besides the counter. The key is
(seed, stream number), and a stream's number is a hash of its name, `group/member/purpose`. So
adding a client, or a draw in one client, moves no draw of any other.

What it is not: distributions; those are in `simulator.traffic.draws`, fed with what `Stream`
hands out. `philox4x64` is the definition, in exact integers; `Stream` takes the same words from
numpy in blocks, which the tests hold equal to the definition word for word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

import numpy as np

__all__ = ["Stream", "philox4x64", "stream_number"]

_MASK: Final = (1 << 64) - 1
_ROUNDS: Final = 10
_MULTIPLIERS: Final = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL: Final = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)

_FIRST_BLOCK_WORDS: Final = 8
_LAST_BLOCK_WORDS: Final = 1024

_UNIT: Final = 2.0**-52


def philox4x64(counter: int, key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the four words of one block; `counter` has 256 bits, the key's parts 64 each.

    Word i of a stream is word i mod 4 of block i div 4 + 1, as numpy counts.

    >>> philox4x64(0, (0, 0))[0] == 0x16554D9ECA36314C
    True
    """
    c0, c1 = counter & _MASK, counter >> 64 & _MASK
    c2, c3 = counter >> 128 & _MASK, counter >> 192 & _MASK
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0 = c0 * _MULTIPLIERS[0]
        p1 = c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (p1 >> 64) ^ c1 ^ k0,
            p1 & _MASK,
            (p0 >> 64) ^ c3 ^ k1,
            p0 & _MASK,
        )
        k0 = k0 + _WEYL[0] & _MASK
        k1 = k1 + _WEYL[1] & _MASK
    return c0, c1, c2, c3


@lru_cache(maxsize=1 << 19)
def stream_number(name: str) -> int:
    """Return the 64-bit number of the stream that goes by `name`, the same in every run.

    >>> stream_number("browsers/17/think") == stream_number("browsers/17/think")
    True
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


class Stream:
    """One source of numbers in (0, 1): the words of Philox under (seed, number of the name).

    The number of a word w is (⌊w / 2¹²⌋ + ½) · 2⁻⁵²: exact in a double, never 0 and never 1, so
    that its logarithm and every quantile of it are finite.

    seed: 0 to 2⁶⁴ − 1; name: any text.

    >>> a, b = Stream(7, "x"), Stream(7, "x")
    >>> [a.uniform() for _ in range(20)] == [b.uniform() for _ in range(20)]
    True
    """

    __slots__ = ("uniform",)

    uniform: Callable[[], float]
    """Returns the next number in (0, 1)."""

    def __init__(self, seed: int, name: str) -> None:
        assert 0 <= seed <= _MASK, "a seed has 64 bits"
        key = np.array([seed, stream_number(name)], dtype=np.uint64)
        self.uniform = _numbers(np.random.Philox(key=key)).__next__


def _numbers(source: np.random.Philox) -> Iterator[float]:
    block_words = _FIRST_BLOCK_WORDS
    while True:
        words = source.random_raw(block_words)
        yield from (((words >> np.uint64(12)).astype(np.float64) + 0.5) * _UNIT).tolist()
        block_words = min(4 * block_words, _LAST_BLOCK_WORDS)
