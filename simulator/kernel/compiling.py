"""How the kernel's functions are compiled, and where the machine code is kept.

Two options of numba carry the speed. `_nrt=False` compiles without reference counts, which every
array that is passed on would cost: 2.4 to 3.3 × on CL1. It is private, so numba is pinned and a
test holds it. Forced inlining of what every event calls: 1.3 to 1.8 ×. No fastmath: it would let
the compiler reorder floating-point arithmetic, and decisions would differ in the last bit.

numba's own cache checks one source file a function, but a compiled function contains the code that
it calls in other files too. So the cache's folder is named by a digest of all sources.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.extending import is_jitted

from simulator.play import outside
from simulator.traffic import draws

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_UNUSED_DAYS: Final = 30


def inlined(function: _Function) -> _Function:
    """Compile a function into its callers: for what every event needs."""
    compiled: _Function = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def called(function: _Function) -> _Function:
    """Compile a function that is called: for what is large or rare."""
    compiled: _Function = numba.njit(**_OPTIONS)(function)
    return compiled


def entry(function: _Function) -> _Function:
    """Compile a function that Python calls; its machine code is kept on disk."""
    compiled: Any = numba.njit(**_OPTIONS)(function)
    if _FOLDER is not None and is_jitted(compiled):
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(_FOLDER)
        try:
            compiled._cache = _KeptCode(function)  # noqa: SLF001 # reason: numba's `cache=True` does no more
        finally:
            numba.config.CACHE_DIR = before
    cached: _Function = compiled
    return cached


_READY: Final[set[str]] = set()
"""Parts that this process has seen compiled."""


def is_compiled(name: str) -> bool:
    """Whether this process has compiled a part, or the cache holds it."""
    if name not in _READY and _FOLDER is not None and (_FOLDER / f"{name}.ready").exists():
        _READY.add(name)
    return name in _READY


def warm_up(name: str, call: Callable[[], object], tell: Callable[[str], None]) -> None:
    """Run `call`, which compiles a part, unless the cache holds it already.

    One of several processes compiles; the others wait for it. name: of the part. tell: called with
    a line of text.
    """
    if is_compiled(name):
        return
    with _alone():
        if is_compiled(name):
            return
        tell(f"compiling the {name}, once on this machine (below half a minute) …")
        began_s = time.monotonic()
        call()
        tell(f"compiled in {time.monotonic() - began_s:.0f} s")
        _READY.add(name)
        if _FOLDER is not None:
            (_FOLDER / f"{name}.ready").touch()
            _forget_unused(_FOLDER)


def _cache_folder() -> Path | None:
    """Return the folder of the machine code of these sources; None where none can be written."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        base = Path(given)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(numba.__version__.encode())
    shared = Path(draws.__file__), Path(outside.__file__)
    for path in sorted({*Path(__file__).parent.glob("*.py"), *shared}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    folder = base / "tollgate" / f"kernel-{digest.hexdigest()[:16]}"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return None


_FOLDER: Final = _cache_folder()


class _Place(UserProvidedCacheLocator):  # type: ignore[misc] # reason: numba has no types
    """Where a function's code is kept: the same place for every checkout of the same sources."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return the folder of the source, without the path that leads to it."""
        return Path(py_file).parent.name

    def get_source_stamp(self) -> int:
        """Return what is equal for equal sources: the folder is named by their digest."""
        return 0


class _Machine(CompileResultCacheImpl):  # type: ignore[misc] # reason: numba has no types
    _locator_classes = [_Place]  # noqa: RUF012 # reason: numba's


class _KeptCode(FunctionCache):  # type: ignore[misc] # reason: numba has no types
    """Machine code on disk, loaded without the compiler, which takes longer than a short run."""

    _impl_class = _Machine

    def load_overload(self, sig: object, target_context: object) -> object:
        """Return the code for a signature, None where there is none yet."""
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock against other processes that would compile the same."""
    if _FOLDER is None or not importlib.util.find_spec("fcntl"):
        yield
        return
    fcntl: Any = importlib.import_module("fcntl")  # Windows has none
    with (_FOLDER / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _forget_unused(keep: Path) -> None:
    """Remove the machine code of other sources that has been unused for a month."""
    bound_s = time.time() - _UNUSED_DAYS * 86_400
    for folder in keep.parent.glob("*-" + "[0-9a-f]" * 16):
        if folder != keep and folder.stat().st_mtime < bound_s:
            shutil.rmtree(folder, ignore_errors=True)
