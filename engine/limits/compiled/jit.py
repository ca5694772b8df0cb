"""Compile with numba and cache the code on disk, so that only a machine's first run compiles.

numba's own cache checks one source file per function, but a compiled function contains the code it
calls in other files too. So each set of compiled functions has its own cache folder, named by a
digest of all its sources: machine code of changed sources is never used.

No fastmath: it would let the compiler reorder floating-point arithmetic, and decisions would differ
in the last bit. The lock is released while compiled code runs, so threads run side by side.

Pointers give compiled code an array's memory without its reference count. Taking a row of an array
(`lines[counter]`) counts a reference up and down again, which costs more than a decision. A pointer
is indexed like an array at no cost; its maker must keep the array alive, and the caller must check
bounds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils, event
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    UserProvidedCacheLocator,
)
from numba.core.runtime.nrt import rtsys
from numba.extending import intrinsic, is_jitted, register_jitable

_Function = TypeVar("_Function", bound=Callable[..., Any])

_TELL_EVERY_S: Final = 5.0
_FUNCTIONS: Final[set[Callable[..., Any]]] = set()
"""What may be compiled."""

_READY: Final = "ready"
_UNUSED_DAYS: Final = 30


def inlined(function: _Function) -> _Function:
    """Let compiled code inline a plain function; calls from Python still run it in Python.

    The function itself is returned, so its module need not know of numba. It is inlined because
    passing the many pointers of a simulation costs more than most functions do.
    """
    _FUNCTIONS.add(function)
    found: _Function = register_jitable(forceinline=True)(function)
    return found


def called(function: _Function) -> _Function:
    """Do the same as `inlined`, but as a call: for large or rare functions, to compile faster."""
    _FUNCTIONS.add(function)
    found: _Function = register_jitable(function)
    return found


def cache_root() -> Path:
    """Return where compiled code is kept: NUMBA_CACHE_DIR, or the user's folder of caches."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return Path(given) / "tollgate"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tollgate"


class _Place(UserProvidedCacheLocator):  # type: ignore[misc] # reason: numba has no types
    """Where a function's code is kept: the same place for every checkout of the same sources."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return the folder of the source, without the path that leads to it."""
        return Path(py_file).parent.name

    def get_source_stamp(self) -> int:
        """Return what is equal for equal sources: the set's folder is named by their digest."""
        return 0


class _Machine(CompileResultCacheImpl):  # type: ignore[misc] # reason: numba has no types
    _locator_classes = [_Place]  # noqa: RUF012 # reason: numba's


class _KeptCode(FunctionCache):  # type: ignore[misc] # reason: numba has no types
    """A function's machine code on disk, loaded without the compiler.

    numba's own cache first loads the whole compiler (scipy's linear algebra included), which takes
    longer than everything else before the first decision. Compiled code needs only the runtime;
    when something must be compiled after all, the compiler loads the rest.
    """

    _impl_class = _Machine

    def load_overload(self, sig: object, target_context: object) -> object:
        """Return the code for a signature, None where there is none yet."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class Jit:
    """One set of compiled functions with its cache.

    name: of the set. sources: every file whose code goes into it.
    """

    def __init__(self, name: str, sources: Iterable[Path]) -> None:
        digest = hashlib.sha256(numba.__version__.encode())
        for path in sorted({*sources, Path(__file__)}):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        self.name = name
        self._sources = {str(path) for path in sources}
        self._folder: Path | None = cache_root() / f"{name}-{digest.hexdigest()[:16]}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self._folder, os.W_OK | os.X_OK):
                self._folder = None
        except OSError:
            self._folder = None

    def compiled(self, function: _Function) -> _Function:
        """Compile a function when it is first called, or take it from the cache."""
        _FUNCTIONS.add(function)
        made: Any = numba.njit(nogil=True)(function)
        if self._folder is not None and is_jitted(made):
            before = numba.config.CACHE_DIR
            numba.config.CACHE_DIR = str(self._folder)
            try:
                made._cache = _KeptCode(function)  # noqa: SLF001 # reason: numba's `cache=True` does no more
            finally:
                numba.config.CACHE_DIR = before
        found: _Function = made
        return found

    def is_ready(self) -> bool:
        """Whether the cache holds the compiled code."""
        return self._folder is not None and (self._folder / _READY).exists()

    def warm_up(self, call: Callable[[], object], tell: Callable[[str], None] | None) -> None:
        """Run `call`, which compiles everything, unless the cache holds it already.

        One of several processes compiles; the others wait for it. tell: called with a line of text
        at the start, for progress and at the end.
        """
        if self.is_ready():
            return
        with self._alone():
            if self.is_ready():
                return
            tell = tell or _nobody
            tell(f"compiling the {self.name}, once on this machine (about half a minute) …")
            began_s = time.monotonic()
            with self._progress(tell):
                call()
            tell(f"compiled in {time.monotonic() - began_s:.0f} s")
            if self._folder is not None:
                (self._folder / _READY).touch()
                _forget_unused(self._folder.parent, keep=self._folder)

    @contextmanager
    def _progress(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Report from time to time how many of the sources' functions are compiled."""
        left = {each for each in _FUNCTIONS if each.__code__.co_filename in self._sources}
        listener = _Compiled(left, tell)
        event.register("numba:compile", listener)
        try:
            yield
        finally:
            event.unregister("numba:compile", listener)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold a lock against other processes that would compile the same."""
        if self._folder is None or not importlib.util.find_spec("fcntl"):
            yield
            return
        fcntl: Any = importlib.import_module("fcntl")  # Windows has none
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)


class _Compiled(event.Listener):  # type: ignore[misc] # reason: numba has no types
    """Counts the functions that numba compiles. left: those not compiled yet."""

    def __init__(self, left: set[Callable[..., Any]], tell: Callable[[str], None]) -> None:
        self._left = left
        self._count = len(left)
        self._tell = tell
        self._told_s = time.monotonic()

    def on_start(self, happened: Any) -> None:  # noqa: ANN401 # reason: numba has no types
        """Do nothing: functions are counted at the end."""

    def on_end(self, happened: Any) -> None:  # noqa: ANN401 # reason: numba has no types
        """Count a function."""
        dispatcher = happened.data.get("dispatcher")
        self._left.discard(getattr(dispatcher, "py_func", None))
        if time.monotonic() - self._told_s >= _TELL_EVERY_S:
            self._told_s = time.monotonic()
            self._tell(f"compiled {self._count - len(self._left)} of {self._count} functions …")


def _nobody(text: str) -> None:
    del text


def _forget_unused(root: Path, *, keep: Path) -> None:
    """Remove cache folders that have been unused for a month."""
    import shutil  # noqa: PLC0415 # reason: once, after compiling

    bound_s = time.time() - _UNUSED_DAYS * 86_400
    for folder in root.glob("*-" + "[0-9a-f]" * 16):
        marker = folder / _READY
        if folder != keep and marker.exists() and marker.stat().st_mtime < bound_s:
            shutil.rmtree(folder, ignore_errors=True)


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
