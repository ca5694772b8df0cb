"""The words of random streams by definition, in exact integers.

Philox4x64-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11).
`simulator.traffic.draws.Stream` takes the same words from numpy, compiled code computes its own.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


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
