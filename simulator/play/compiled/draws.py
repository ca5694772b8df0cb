"""Random numbers and draws in compiled code: the formulas of `simulator.traffic`, as they stand.

`simulator.traffic.draws` is compiled from its own source, so a draw is one function for both
fidelities. Philox's words are computed here block by block (numpy's come from its own C code); the
definition, `simulator.traffic.streams.philox4x64`, is what tests hold both to.

A *stream* is a row of `STREAM_WIDTH` words: key, block's number, words used, the block.
A *draw* is a row of `DRAW_WIDTH` integers and one of floats (`simulator.scenario.draws`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types as _types
from numba.extending import intrinsic as _intrinsic

from engine.limits.compiled.jit import called, inlined, moved
from engine.limits.compiled.lookup import Int, Pointer
from simulator.traffic import draws

__all__ = [
    "CONSTANT",
    "DISCRETE",
    "DRAW_WIDTH",
    "EXPONENTIAL",
    "LOGNORMAL",
    "PARETO",
    "STREAM_WIDTH",
    "UNIFORM",
    "choose",
    "draw_ns",
    "exponential_ns",
    "nearest_ns",
    "uniform",
    "uniform_ns",
]

intrinsic: Any = _intrinsic
types: Any = _types

STREAM_WIDTH: Final = 8
_KEY_0, _KEY_1, _BLOCK, _USED, _WORDS = 0, 1, 2, 3, 4

DRAW_WIDTH: Final = 4
KIND: Final = 0
FIRST: Final = 1  # low, mean, median, least, value; a discrete draw's first place in the tables
SECOND: Final = 2  # high; how many values
CONSTANT, UNIFORM, EXPONENTIAL, LOGNORMAL, PARETO, DISCRETE = range(6)

_ROUNDS: Final = 10
_M0: Final = np.uint64(0xD2E7470EE14C6C93)
_M1: Final = np.uint64(0xCA5A826395121157)
_W0: Final = np.uint64(0x9E3779B97F4A7C15)
_W1: Final = np.uint64(0xBB67AE8584CAA73B)
_ONE: Final = np.uint64(1)
_LOW_BITS: Final = np.uint64(12)
_UNIT: Final = 2.0**-52

nearest_ns = inlined(draws.nearest_ns)
uniform_ns = inlined(draws.uniform_ns)
exponential_ns = inlined(draws.exponential_ns)
raise_e = inlined(draws.raise_e)
_rational = inlined(draws._rational)  # noqa: SLF001 # reason: compiled code needs every callee
normal = inlined(draws.normal)
lognormal_ns = inlined(draws.lognormal_ns)
pareto_ns = inlined(draws.pareto_ns)


@intrinsic  # type: ignore[untyped-decorator] # reason: numba has no types
def _high_word(typing_context: Any, one: Any, other: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    """Return the upper 64 bits of a product of two words."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
        from llvmlite import ir  # noqa: PLC0415 # reason: only where code is generated

        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        shifted = builder.lshr(product, ir.Constant(wide, 64))
        return builder.trunc(shifted, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@called
def _refill(stream: Pointer) -> None:
    """Compute the stream's next block of four words."""
    stream[_BLOCK] += _ONE
    c0, c1, c2, c3 = stream[_BLOCK], np.uint64(0), np.uint64(0), np.uint64(0)
    k0, k1 = stream[_KEY_0], stream[_KEY_1]
    for _ in range(_ROUNDS):
        h0, l0 = _high_word(c0, _M0), c0 * _M0
        h1, l1 = _high_word(c2, _M1), c2 * _M1
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0 += _W0
        k1 += _W1
    stream[_WORDS] = c0
    stream[_WORDS + 1] = c1
    stream[_WORDS + 2] = c2
    stream[_WORDS + 3] = c3
    stream[_USED] = np.uint64(0)


@inlined
def uniform(streams: Pointer, number: Int) -> float:
    """Return a stream's next number in (0, 1), as `Stream.uniform` does."""
    stream = moved(streams, np.int64(number) * STREAM_WIDTH)
    if stream[_USED] == np.uint64(4):
        _refill(stream)
    used = np.int64(stream[_USED])
    stream[_USED] = np.uint64(used + 1)
    return (np.float64(stream[_WORDS + used] >> _LOW_BITS) + 0.5) * _UNIT


@inlined
def choose(u: float, tables: Pointer, first: Int, count: Int) -> Int:
    """Return `draws.categorical` of `count` cumulative weights that begin at `first`."""
    cumulative = moved(tables, np.int64(first))
    wanted = u * cumulative[count - 1]
    low, high = np.int64(0), np.int64(count)
    while low < high:
        middle = (low + high) // 2
        if wanted < cumulative[middle]:
            high = middle
        else:
            low = middle + 1
    return min(low, np.int64(count) - 1)


@inlined
def draw_ns(draw: Pointer, share: float, u: float, values: Pointer, tables: Pointer) -> Int:
    """Return one draw; share is sigma or alpha, where it has one."""
    kind = draw[KIND]
    if kind == EXPONENTIAL:
        return exponential_ns(u, draw[FIRST])
    if kind == UNIFORM:
        return uniform_ns(u, draw[FIRST], draw[SECOND])
    if kind == LOGNORMAL:
        return lognormal_ns(u, draw[FIRST], share)
    if kind == PARETO:
        return pareto_ns(u, draw[FIRST], share)
    return values[draw[FIRST] + choose(u, tables, draw[FIRST], draw[SECOND])]
