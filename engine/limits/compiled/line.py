"""A counter's line in compiled code: what the algorithms index, in half the memory.

The algorithms see one `line` of integers (`engine.limits.algorithms`). Here its words lie in two
places: the four that a test or a charge reads in 32 bytes, so that two counters share a cache line,
and the others, of blocks and delays, elsewhere. A word's place depends on its number alone, and
that is a constant wherever a line is indexed; so the compiler leaves nothing of the look-up.

Two words share a place: no algorithm uses both. Where the sliding counter has `CUR`, the sliding
log has its ring, `RING`: where it begins (`BASE`) and how many slots it has, in one integer.
"""

from __future__ import annotations

import operator
from typing import Any, Final

from llvmlite import ir as _ir
from numba import types as _types
from numba.core import cgutils as _cgutils
from numba.core.typing import templates as _templates
from numba.extending import intrinsic as _intrinsic
from numba.extending import lower_builtin as _lower_builtin
from numba.extending import models as _models
from numba.extending import register_model as _register_model

from engine.limits.algorithms import BASE, BLOCK, LAST, LINE_SIZE, READY

__all__ = ["LEG", "LINE_WIDTH", "RING", "SLOT_BITS", "SLOT_MASK", "joined"]

cgutils: Any = _cgutils
infer_global: Any = _templates.infer_global
intrinsic: Any = _intrinsic
ir: Any = _ir
lower_builtin: Any = _lower_builtin
models: Any = _models
register_model: Any = _register_model
signature: Any = _templates.signature
Template: Any = _templates.AbstractTemplate
types: Any = _types

LINE_WIDTH: Final = 4
"""Integers of a line in each of the two places."""

LEG: Final = LINE_SIZE
"""The word after the algorithms' own: the leg that a counter belongs to."""

RING: Final = 6
SLOT_BITS: Final = 30
SLOT_MASK: Final = (1 << SLOT_BITS) - 1

# Word → place: 0 to 3 among those that are used often, 4 to 7 among the others.
_PLACES: Final = {READY: 0, BLOCK: 4, LAST: 5, BASE: 3, 4: 1, 5: 2, RING: 3, LEG: 6}
_PACKED: Final = sum(place << 4 * word for word, place in _PLACES.items())
_WIDTH_BITS: Final = 2


class _LineType(types.Type):  # type: ignore[misc] # reason: numba has no types
    """Two pointers: a line's two places."""

    def __init__(self) -> None:
        super().__init__(name="Line")


_LINE: Final = _LineType()
_WORDS: Final = types.CPointer(types.int64)


@register_model(_LineType)
class _LineModel(models.StructModel):  # type: ignore[misc] # reason: numba has no types
    def __init__(self, manager: Any, kind: Any) -> None:  # noqa: ANN401 # reason: numba's protocol
        super().__init__(manager, kind, [("often", _WORDS), ("seldom", _WORDS)])


@intrinsic  # type: ignore[untyped-decorator] # reason: numba has no types
def joined(typing_context: Any, often: Any, seldom: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    """Return the line whose two places two pointers point at."""
    if not (often == _WORDS and seldom == _WORDS):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
        made = cgutils.create_struct_proxy(_LINE)(context, builder)
        made.often, made.seldom = args
        return made._getvalue()  # noqa: SLF001 # reason: numba's protocol

    return _LINE(_WORDS, _WORDS), generate


def _word(context: Any, builder: Any, line: Any, number: Any) -> Any:  # noqa: ANN401 # reason: numba's protocol
    """Return a pointer to a word of a line."""
    made = cgutils.create_struct_proxy(_LINE)(context, builder, value=line)
    whole = number.type
    shift = builder.shl(number, whole(2))
    place = builder.and_(builder.lshr(whole(_PACKED), shift), whole(7))
    is_seldom = builder.trunc(builder.lshr(place, whole(_WIDTH_BITS)), ir.IntType(1))
    base = builder.select(is_seldom, made.seldom, made.often)
    return builder.gep(base, [builder.and_(place, whole(LINE_WIDTH - 1))])


@infer_global(operator.getitem)
class _GetWord(Template):  # type: ignore[misc] # reason: numba has no types
    def generic(self, args: Any, kws: Any) -> Any:  # noqa: ANN401 # reason: numba's protocol
        assert not kws
        if len(args) == 2 and args[0] == _LINE:
            return signature(types.int64, _LINE, types.int64)
        return None


@infer_global(operator.setitem)
class _SetWord(Template):  # type: ignore[misc] # reason: numba has no types
    def generic(self, args: Any, kws: Any) -> Any:  # noqa: ANN401 # reason: numba's protocol
        assert not kws
        if len(args) == 3 and args[0] == _LINE:
            return signature(types.none, _LINE, types.int64, types.int64)
        return None


@lower_builtin(operator.getitem, _LineType, types.Integer)  # type: ignore[untyped-decorator] # reason: numba has no types
def _get_word(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    found = builder.load(_word(context, builder, *args))
    whole = found.type
    is_base = builder.icmp_signed("==", args[1], args[1].type(BASE))
    return builder.select(is_base, builder.ashr(found, whole(SLOT_BITS)), found)


@lower_builtin(operator.setitem, _LineType, types.Integer, types.int64)  # type: ignore[untyped-decorator] # reason: numba has no types
def _set_word(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    builder.store(args[2], _word(context, builder, *args[:2]))
    return context.get_dummy_value()
