"""Every field of a scenario file, as Markdown tables made from the JSON Schema beside the code."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from simulator.scenario import schema

__all__ = ["scenario_fields"]

_PLACES: Final = {
    "Tenant": "`[[tenants]]`",
    "Quotas": "`quotas` of a tenant",
    "Application": "`[[applications]]`",
    "Grant": "an entry of `grants`",
    "AddressPool": "`[[addresses]]`",
    "Proxy": "`[[proxies]]`",
    "Reactor": "`[[reactors]]`",
    "ClientGroup": "`[[clients]]`",
    "Dealing": "`keys` of a group, `deal` of addresses",
    "Ask": "an entry of `mix`",
    "TypeWeights": "`types` of a mix entry",
    "Constant": 'a time: `kind = "constant"`',
    "RuleChange": "`[rules.ID]`",
    "Nodes": "`[nodes]`",
    "Threshold": "`[[thresholds]]`",
    "Step": "an entry of `steps`",
}
_TIMES: Final = ("Constant", "Uniform", "Exponential", "Lognormal", "Pareto", "Discrete")
_SCALARS: Final = frozenset({"duration", "mean_rate", "rate", "size"})
_KEPT_LENGTH: Final = 40


def scenario_fields() -> str:
    """Return one table a section of a scenario file."""
    whole = schema()
    parts = [_table("At the top", whole)]
    parts += [
        _table(_heading(name, shape), shape)
        for name, shape in whole["$defs"].items()
        if name not in _SCALARS and not name.endswith("Profile") and name != "Profile"
    ]
    return "\n".join(parts)


def _heading(name: str, shape: Mapping[str, Any]) -> str:
    kind = shape["properties"].get("kind", {}).get("const")
    if name in _PLACES and name not in _TIMES:
        return _PLACES[name]
    what = "a time" if name in _TIMES else _family(name)
    return f'{what}: `kind = "{kind}"`'


def _family(name: str) -> str:
    for ending, what in (("Arrivals", "`arrivals`"), ("Pacing", "`pacing`")):
        if name.endswith(ending):
            return what
    return "`retry`"


def _table(title: str, shape: Mapping[str, Any]) -> str:
    says = " ".join(str(shape.get("description", "")).split()).replace("|", "\\|")
    required = set(shape.get("required", ()))
    rows = "\n".join(_rows(shape["properties"], required))
    heading = f"### {title[:1].upper() + title[1:]}\n\n{textwrap.fill(says, 100)}\n"
    if not rows:
        return heading
    return f"{heading}\n| field | what it says | form | default |\n|---|---|---|---|\n{rows}\n"


def _rows(fields: Mapping[str, Any], required: set[str]) -> Iterator[str]:
    for name, field in fields.items():
        if name == "kind" and "const" in field:
            continue
        default = "required" if name in required else _default(field)
        says = " ".join(str(field.get("description", "")).split()).replace("|", "\\|")
        yield f"| `{name}` | {says} | {_form(field)} | {default} |"


def _default(field: Mapping[str, Any]) -> str:
    if "default" not in field:
        return "–"
    text = json.dumps(field["default"], ensure_ascii=False)
    return f"`{text}`" if len(text) <= _KEPT_LENGTH else "see the schema"


def _form(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return name if name in _SCALARS else "table"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    for either in ("oneOf", "anyOf"):
        if either in field:
            return " or ".join(dict.fromkeys(_form(one) for one in field[either]))
    if field.get("type") == "array":
        return f"list of {_form(field.get('items', {}))}"
    names = {"integer": "whole number", "string": "text", "object": "table", "boolean": "yes or no"}
    kind = str(field.get("type", "any"))
    return names.get(kind, kind)
