"""A simulation as compiled code sees it: one pointer, whose fields are read by name, and its rows.

Passing forty pointers costs more than most calls do, and takes long to compile. So `words_of` puts
the addresses into an array of words, and compiled code passes a pointer to it. The addresses are
declared constant to the compiler. The limiter's arrays come as `Raw`, a value of many pointers; it
is kept on the stack, and the block's last word is its address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_type_hints

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic

from engine.limits.compiled.jit import inlined, moved
from engine.limits.compiled.lookup import Int, Pointer, rows_of
from simulator.play.compiled import layout as at
from simulator.play.compiled.layout import Sim

_TYPES: Final = {
    at.Ints: types.int64,
    at.Shorts: types.int32,
    at.Words: types.uint64,
    at.Floats: types.float64,
}
_POINTERS: Final = {
    name: types.CPointer(_TYPES[kind]) for name, kind in get_type_hints(Sim).items()
}
_SIZES: Final[dict[str, Callable[[Any], int]]] = {
    "call_room": lambda sim: len(sim.calls),
    "apart_width": lambda sim: sim.apart.shape[1],
    "client_count": lambda sim: len(sim.clients),
    "combo_mask": lambda sim: len(sim.combo_table) - 1,
    "combo_room": lambda sim: len(sim.combos),
    "event_room": lambda sim: len(sim.events),
    "late_room": lambda sim: len(sim.late),
    "row_room": lambda sim: sim.rows.shape[1],
    "wheel_mask": lambda sim: len(sim.wheel) - 1,
}
_PLACES: Final = {name: place for place, name in enumerate((*_POINTERS, *_SIZES, "limits"))}


def words_of(sim: Sim) -> at.Ints:
    """Return the block's words; the caller must keep the arrays alive."""
    addresses = [array.ctypes.data for array in sim]
    return np.array([*addresses, *(size(sim) for size in _SIZES.values()), 0], dtype=np.int64)


class _Block(types.Type):  # type: ignore[misc] # reason: numba has no types
    """The type of a block, given the limiter's."""

    def __init__(self, limits: Any) -> None:  # noqa: ANN401 # reason: a type of numba's
        self.limits = limits
        digest = hashlib.sha256(str(limits).encode()).hexdigest()[:16]
        super().__init__(name=f"simulation_{digest}")


class _Model(models.PrimitiveModel):  # type: ignore[misc] # reason: numba has no types
    """A block is a pointer to words."""

    def __init__(self, manager: Any, block: Any) -> None:  # noqa: ANN401 # reason: numba's protocol
        super().__init__(manager, block, ir.PointerType(ir.IntType(64)))


class _Fields(AttributeTemplate):  # type: ignore[misc] # reason: numba has no types
    """What type each field of a block has."""

    key = _Block

    def generic_resolve(self, value: Any, attr: Any) -> Any:  # noqa: ANN401 # reason: numba's protocol
        """Return a field's type."""
        if attr == "limits":
            return value.limits
        return types.int64 if attr in _SIZES else _POINTERS.get(attr)


def _field(context: Any, builder: Any, block: Any, value: Any, name: str) -> Any:  # noqa: ANN401 # reason: numba's protocol
    """Read a field of a block."""
    place = ir.Constant(ir.IntType(64), _PLACES[name])
    word = builder.load(builder.gep(value, [place]))
    if name == "limits":
        kept = context.get_value_type(block.limits)
        return builder.load(builder.inttoptr(word, ir.PointerType(kept)))
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    if name in _SIZES:
        return word
    return builder.inttoptr(word, context.get_value_type(_POINTERS[name]))


register_default(_Block)(_Model)
infer_getattr(_Fields)
lower_getattr_generic(_Block)(_field)


@intrinsic  # type: ignore[untyped-decorator] # reason: numba has no types
def block_of(typing_context: Any, words: Any, limits: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    """Return the block that stands in an array of words, with the limiter's arrays in it."""
    result = _Block(limits)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401 # reason: numba's protocol
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        kept = cgutils.alloca_once_value(builder, args[1])
        place = ir.Constant(ir.IntType(64), _PLACES["limits"])
        builder.store(builder.ptrtoint(kept, ir.IntType(64)), builder.gep(array.data, [place]))
        return array.data

    return result(words, limits), generate


RawSim: TypeAlias = Any
"""What `simulator.play.compiled.state.block_of` makes of a `Sim`."""


behind_row: Final = rows_of(lambda sim: sim.behind, at.BEHIND_WIDTH)
call_row: Final = rows_of(lambda sim: sim.calls, at.CALL_WIDTH)
client_row: Final = rows_of(lambda sim: sim.clients, at.CLIENT_WIDTH)
combo_row: Final = rows_of(lambda sim: sim.combos, at.COMBO_WIDTH)
ended_row: Final = rows_of(lambda sim: sim.ended, at.ENDED_WIDTH)
event_row: Final = rows_of(lambda sim: sim.events, at.EVENT_WIDTH)
link_row: Final = rows_of(lambda sim: sim.links, at.LINK_WIDTH)
pool_row: Final = rows_of(lambda sim: sim.pools, at.POOL_WIDTH)
request_row: Final = rows_of(lambda sim: sim.requests, at.REQUEST_WIDTH)
stream_row: Final = rows_of(lambda sim: sim.streams, at.STREAM_WIDTH)


@inlined
def group_row(sim: RawSim, client: Pointer) -> Pointer:
    """Return the row of a client's group."""
    return moved(sim.groups, client[at.C_GROUP] * at.GROUP_WIDTH)


@inlined
def near_row(sim: RawSim, place: Int) -> Pointer:
    """Return the row of an event that is near; places go round."""
    return moved(sim.near, (np.int64(place) & (at.NEAR_ROOM - 1)) * at.NEAR_WIDTH)


@inlined
def new_request(sim: RawSim, client: Int, serial: Int) -> Int:
    """Take a free place for a request."""
    number = sim.clock[at.FREE_REQUEST]
    request = request_row(sim, number)
    sim.clock[at.FREE_REQUEST] = request[at.R_NEXT]
    request[at.R_CLIENT] = client
    request[at.R_SERIAL] = serial
    request[at.R_LANE] = at.NONE
    return number


@inlined
def forget_request(sim: RawSim, number: Int) -> None:
    """Give a request's place back."""
    request = request_row(sim, number)
    request[at.R_NEXT] = sim.clock[at.FREE_REQUEST]
    request[at.R_BEGAN] = at.NONE
    sim.clock[at.FREE_REQUEST] = number
