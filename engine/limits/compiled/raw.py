"""Pointers for compiled code: an array's memory without its reference count.

Taking a row of an array (`lines[counter]`) counts a reference up and down again, which costs more
than a decision. A pointer is indexed like an array at no cost; its maker must keep the array
alive, and the caller must check bounds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir as _ir
from numba import types as _types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic as _intrinsic

__all__ = ["first_bit", "moved", "pointer", "prefetch"]

cgutils: Any = _cgutils
intrinsic: Any = _intrinsic
ir: Any = _ir
types: Any = _types


@intrinsic  # type: ignore[untyped-decorator] # reason: numba has no types
def pointer(typing_context: Any, array: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    """Return a pointer to a contiguous array's first element."""
    if not isinstance(array, types.Array):
        return None
    result = types.CPointer(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401 # reason: numba's protocol
        made = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        return made.data

    return result(array), generate


@intrinsic  # type: ignore[untyped-decorator] # reason: numba has no types
def moved(typing_context: Any, base: Any, by: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    """Return a pointer moved on by some elements."""
    if not (isinstance(base, types.CPointer) and isinstance(by, types.Integer)):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
        return builder.gep(args[0], [args[1]])

    return base(base, by), generate


@intrinsic  # type: ignore[untyped-decorator] # reason: numba has no types
def prefetch(typing_context: Any, place: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    """Prefetch what a pointer points at; it has no effect on results."""
    if not isinstance(place, types.CPointer):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
        flag, address = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [address, flag, flag, flag])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        where = builder.bitcast(args[0], address)
        builder.call(fetch, [where, flag(0), flag(3), flag(1)])  # to read, keep it, data
        return context.get_dummy_value()

    return types.void(place), generate


@intrinsic  # type: ignore[untyped-decorator] # reason: numba has no types
def first_bit(typing_context: Any, bits: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    """Return the place of the lowest bit that is set; one must be."""
    if not isinstance(bits, types.Integer):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
        return builder.cttz(args[0], ir.IntType(1)(1))

    return bits(bits), generate
