"""Which counters a run has used: kept between runs, so that the next one takes others first.

A key at an address that was measured a moment ago is no fresh counter. The instants are those of
this machine's wall clock, by rule and counter; no text of a key is kept. What is older than any
window or block can be is forgotten.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

CounterId: TypeAlias = tuple[str | None, ...]
"""A label of a key and an address, either of them empty where the counter is of the other alone."""
_LONGEST_NS: Final = 600_000_000_000


def file_of(base_url: str) -> Path:
    """Return the file that keeps the counters of a deployment."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    name = hashlib.sha256(base_url.encode()).hexdigest()[:16]
    return Path(state).expanduser() / "tollgate" / f"{name}.json"


class Cooldown:
    """When each counter was last used, or until when it is blocked.

    >>> cooldown = Cooldown()
    >>> cooldown.note("LIM-READ", {("private_prod.1", "127.0.0.2"): 5})
    >>> cooldown.of("LIM-READ"), cooldown.of("LIM-IP")
    ({('private_prod.1', '127.0.0.2'): 5}, {})
    """

    def __init__(self, entries: Iterable[Any] = ()) -> None:
        self._used: dict[str, dict[CounterId, int]] = {}
        for rule_id, key, source, at_ns in entries:
            self._used.setdefault(rule_id, {})[key, source] = int(at_ns)

    @classmethod
    def load(cls, file: Path, now_ns: int) -> Cooldown:
        """Read a file, if there is one that can be read; now_ns: by the wall clock."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            entries = json.loads(file.read_text(encoding="utf-8"))
            return cls(entry for entry in entries if entry[3] > now_ns - _LONGEST_NS)
        return cls()

    def save(self, file: Path) -> None:
        """Write a file, if that is possible: without it, the next run only knows less."""
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(self.entries()), encoding="utf-8")

    def entries(self) -> list[Any]:
        """Return what a file holds."""
        return [
            [rule_id, *counter, at_ns]
            for rule_id, used in self._used.items()
            for counter, at_ns in used.items()
        ]

    def note(self, rule_id: str, used_ns: Mapping[CounterId, int]) -> None:
        """Note when counters of a rule were used."""
        known = self._used.setdefault(rule_id, {})
        for counter, at_ns in used_ns.items():
            known[counter] = max(at_ns, known.get(counter, at_ns))

    def of(self, rule_id: str) -> Mapping[CounterId, int]:
        """Return when the counters of a rule were used."""
        return self._used.get(rule_id, {})
