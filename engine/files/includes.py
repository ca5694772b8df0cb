"""Include: a file that another file refers to, with the position of the reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.files.document import Spot
from engine.files.kinds import Kind, Schema, Text

__all__ = ["FilePath", "Include"]


@dataclass(frozen=True)
class Include:
    """Another file that a file names.

    path: as written. file: where that is, relative to the folder of the file that names it.
    where: `file:line:col: `, to begin messages about it with. Only the path is compared.
    """

    path: str
    folder: Path | None = None
    where: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Include) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def file(self) -> Path:
        """The file's place."""
        return Path(self.path) if self.folder is None else self.folder / self.path


@dataclass(frozen=True)
class FilePath(Kind[Include]):
    """The path of another file, relative to the one that names it; it must be there."""

    must_exist: bool = True

    def _read(self, spot: Spot) -> Include:
        path = Text().read(spot)
        document = spot.document
        found = Include(path, document.folder, document.where(spot.path))
        if self.must_exist and not found.file.is_file():
            spot.fail(f"must be a file; there is none at {found.file}")
        return found

    def _write(self, value: Include) -> str:
        return value.path

    def _schema(self, _definitions: dict[str, Schema]) -> Schema:
        return {"type": "string", "minLength": 1}
