"""Compile with numba and cache the code on disk, so that only a machine's first run compiles.

numba's own cache checks one source file per function, but a compiled function contains the code it
calls in other files too. So each set of compiled functions has its own cache folder, named by a
digest of all its sources: machine code of changed sources is never used.

No fastmath: it would let the compiler reorder floating-point arithmetic, and decisions would differ
in the last bit. The lock is released while compiled code runs, so threads run side by side.
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

import numba as _numba
from numba.core import event as _event
from numba.core.caching import FunctionCache as _FunctionCache
from numba.core.runtime.nrt import rtsys as _rtsys
from numba.extending import is_jitted as _is_jitted
from numba.extending import register_jitable as _register_jitable

__all__ = ["Jit", "cache_root", "called", "inlined"]

numba: Any = _numba
event: Any = _event
is_jitted: Any = _is_jitted
register_jitable: Any = _register_jitable
rtsys: Any = _rtsys
FunctionCache: Any = _FunctionCache

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


class _KeptCode(FunctionCache):  # type: ignore[misc] # reason: numba has no types
    """A function's machine code on disk, loaded without the compiler.

    numba's own cache first loads the whole compiler (scipy's linear algebra included), which takes
    longer than everything else before the first decision. Compiled code needs only the runtime;
    when something must be compiled after all, the compiler loads the rest.
    """

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
