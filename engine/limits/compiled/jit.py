"""Compiling with numba, cached on disk, so that only the first run on a machine waits.

numba's own cache looks at one source file a function, but a compiled function holds what it calls
from other files too. So each set of compiled functions has a cache folder of its own, named by a
digest of all its sources: changed sources can never meet old machine code.

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
    """Let compiled code call a plain function, compiled as it stands; Python's calls stay Python's.

    The function itself is returned, so its module need not know of numba. Its code is put where it
    is called: passing the many pointers of a simulation from call to call costs more than most do.
    """
    _FUNCTIONS.add(function)
    found: _Function = register_jitable(forceinline=True)(function)
    return found


def called(function: _Function) -> _Function:
    """Do the same as `inlined` for what is large or rare: a call, so that compiling stays short."""
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
    """A function's machine code on disk, taken as it is.

    numba's own cache first loads all that it can compile with (scipy's linear algebra among it),
    which takes longer than everything else before the first decision. Finished code needs the
    runtime only; and where something must be compiled after all, the compiler loads the rest.
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

        Of several processes one compiles and the others wait for it. tell: is told in a line that
        something is compiled, how far it is now and then, and when it is done.
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
        """Tell now and then how many functions are compiled, of those that the sources have."""
        left = {each for each in _FUNCTIONS if each.__code__.co_filename in self._sources}
        listener = _Compiled(left, tell)
        event.register("numba:compile", listener)
        try:
            yield
        finally:
            event.unregister("numba:compile", listener)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold off other processes that would compile the same."""
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
    """Hears of each function that numba has compiled. left: those that are not yet."""

    def __init__(self, left: set[Callable[..., Any]], tell: Callable[[str], None]) -> None:
        self._left = left
        self._count = len(left)
        self._tell = tell
        self._told_s = time.monotonic()

    def on_start(self, happened: Any) -> None:  # noqa: ANN401 # reason: numba has no types
        """Do nothing: what counts is done."""

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
    """Remove what older sources left there a month ago."""
    import shutil  # noqa: PLC0415 # reason: once, after compiling

    bound_s = time.time() - _UNUSED_DAYS * 86_400
    for folder in root.glob("*-" + "[0-9a-f]" * 16):
        marker = folder / _READY
        if folder != keep and marker.exists() and marker.stat().st_mtime < bound_s:
            shutil.rmtree(folder, ignore_errors=True)
