"""Plain tables as TOML text, for resolved files: what is written reads back as equal.

Arrays of tables get `[[headers]]`, tables at the top level `[headers]`; whatever lies deeper is
inline, as people write scenario files. tomllib reads only, hence this.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["to_toml"]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_LONG: Final = 88


def to_toml(value: Mapping[str, Any]) -> str:
    """Return TOML text for a table of tables, arrays, strings, numbers and booleans."""
    lines: list[str] = []
    later: list[str] = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            later += ["", f"[{_key(key)}]", *_pairs(item)]
        elif _is_tables(item):
            for table in item:
                later += ["", f"[[{_key(key)}]]", *_pairs(table)]
        else:
            lines += _pair(key, item)
    return "\n".join([*lines, *later]).lstrip("\n") + "\n"


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [line for key, item in table.items() for line in _pair(key, item)]


def _pair(key: str, item: Any) -> list[str]:  # noqa: ANN401 # reason: any TOML value
    line = f"{_key(key)} = {_inline(item)}"
    if len(line) <= _LONG or not isinstance(item, list | tuple) or not item:
        return [line]
    return [f"{_key(key)} = [", *(f"    {_inline(element)}," for element in item), "]"]


def _is_tables(item: object) -> bool:
    return (
        isinstance(item, list | tuple)
        and bool(item)
        and all(isinstance(element, Mapping) for element in item)
    )


def _inline(item: Any) -> str:  # noqa: ANN401 # reason: any TOML value
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return str(item)
    if isinstance(item, float):
        assert math.isfinite(item)
        return repr(item)
    if isinstance(item, str):
        return _string(item)
    if isinstance(item, Mapping):
        if not item:
            return "{}"
        return "{ " + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in item.items()) + " }"
    assert isinstance(item, list | tuple), f"no TOML for {type(item).__name__}"
    return "[" + ", ".join(_inline(element) for element in item) + "]"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """Return a basic string; JSON's escapes are TOML's, but for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
