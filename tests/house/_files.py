"""The files of the checkout as git knows them: tracked, or new and not ignored."""

import ast
import gc
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "simulator", "conformance")


@cache
def files() -> tuple[Path, ...]:
    """Every file that is or would be committed, relative to the root, sorted."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = {Path(name) for name in listed.split("\0") if name}
    return tuple(sorted(path for path in found if (ROOT / path).is_file()))


@cache
def text(path: Path) -> str:
    """The text of a file of the checkout."""
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a Python file of the checkout; no search for garbage visits it."""
    gc.disable()
    try:
        return ast.parse(text(path), filename=str(path))
    finally:
        gc.enable()
        gc.freeze()


def python_files(*folders: str) -> list[Path]:
    """The Python files under the named top folders, all when none is named."""
    return [
        path
        for path in files()
        if path.suffix == ".py" and (not folders or path.parts[0] in folders)
    ]


def module_name(path: Path) -> str:
    """The dotted name under which a Python file is imported."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
