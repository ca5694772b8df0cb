"""Scenarios in and out: files, texts, built-in ones, and one with a value changed.

Every scenario that comes from outside, a text or a changed value, passes the same reader and the
same checks.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from engine.errors import InputError, did_you_mean
from engine.files import (
    Document,
    Include,
    from_document,
    json_schema,
    parse_toml,
    path_text,
    read_toml,
    to_plain,
    to_toml,
)
from simulator.arguments import TEXT, Rule, instance, takes
from simulator.scenario.checks import check
from simulator.scenario.model import Scenario

__all__ = [
    "builtin",
    "dump",
    "is_toml",
    "load",
    "loads",
    "schema",
    "starter",
    "value_of",
    "with_value",
]

_STEP: Final = re.compile(r'\.?([A-Za-z0-9_-]+)|\.?"([^"]*)"|\[([0-9]+)\]|\[([A-Za-z0-9_-]+)\]')
_ANSWER: Final = "Answer:"
_WIDTH: Final = 98
_FILE: Final = instance("a file's path, the name of a built-in scenario, or TOML text", str, Path)


def is_toml(given: object) -> bool:
    """Whether a value is a scenario's text: a path and a name hold no line feed."""
    return isinstance(given, str) and "\n" in given


@takes(
    source=Rule(_FILE.words, lambda value: is_toml(value) or _FILE.holds(value)),
)
def load(source: str | Path) -> Scenario:
    """Return a scenario from a file, from its text in TOML, or a built-in one by its name.

    Raises `InputError` with file:line:col at the first fault.
    """
    name = str(source)
    if isinstance(source, str) and "\n" in source:
        return loads(source)
    if name in _builtin_names():
        return _read(parse_toml(_builtin_text(name), name))
    if isinstance(source, str) and not Path(source).exists() and re.fullmatch(r"[\w-]+", source):
        raise InputError(
            f"scenario = {source!r} is neither a file nor a built-in scenario"
            f"{did_you_mean(source, _builtin_names())}"
        )
    return _read(read_toml(source))


def loads(text: str, name: str = "scenario.toml", *, folder: Path | None = None) -> Scenario:
    """Return a scenario from TOML text; `name` is what messages call it.

    folder: where the files that it includes are; None = the working directory.
    """
    return _read(parse_toml(text, name, folder=folder))


def dump(scenario: Scenario, *, absolute: bool = False) -> str:
    """Return the whole scenario as TOML, every default written out; `loads` reads it back equal.

    absolute: write included files with their whole paths, for a text that is put elsewhere.
    """
    plain = to_plain(_with_absolute_files(scenario) if absolute else scenario)
    lines = _comment(scenario.question) + _comment(
        f"{_ANSWER} {scenario.answer}" if scenario.answer else ""
    )
    return "".join(f"{line}\n" for line in lines) + to_toml(plain)


@takes(
    scenario=instance("a Scenario; `load` makes one", Scenario),
    path=TEXT,
    value=Rule("what a scenario's file can hold", lambda _: True),
)
def with_value(scenario: Scenario, path: str, value: object) -> Scenario:
    """Return the scenario with one value changed, read and checked like any other.

    path: as in the file, an element of an array by its index or by its name:
    `clients[0].count`, `clients.browsers.count`, `rules.LIM-PUBLIC.rate`,
    `choices.limits.algorithm`, `tenants.acme.quotas."Tokenize Limit"`.
    value: what the file would hold (`"50/10s"`, 3, `{"kind": "none"}`); `value_of` makes one from a
    command line's text. Raises `InputError` for a path that leads nowhere or a value that cannot
    be.
    """
    plain = to_plain(scenario)
    steps = _steps(path)
    target: Any = plain
    done: list[str | int] = []
    for step in steps[:-1]:
        key = _entered(target, step, done)
        if isinstance(target, dict) and key not in target:
            target[key] = {}
        target = target[key]
        done.append(key)
    key = _entered(target, steps[-1], done)
    target[key] = value
    document = Document(plain, folder=scenario.folder)
    return _finished(document, plain, question=scenario.question, answer=scenario.answer)


def value_of(text: str) -> object:
    """Return what a text of a command line stands for: TOML where it is some, else itself.

    >>> value_of("3"), value_of("50/10s"), value_of("true"), value_of('{ kind = "none" }')
    (3, '50/10s', True, {'kind': 'none'})
    """
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = found.get("value")
    return value if len(found) == 1 and isinstance(value, int | float | str | list | dict) else text


def builtin() -> dict[str, str]:
    """Return the built-in scenarios: name → the question that it answers."""
    return {name: _question(_builtin_text(name))[0] for name in _builtin_names()}


def starter() -> str:
    """Return the text that `init` writes: a small scenario to edit, with its comments."""
    return resources.files("simulator.scenario").joinpath("starter.toml").read_text("utf-8")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files, which ships as `scenario.schema.json`."""
    return json_schema(Scenario, title="Tollgate scenario")


def _read(document: Document) -> Scenario:
    plain = dict(document.value)
    plain.setdefault("name", re.sub(r"[^A-Za-z0-9_-]+", "-", Path(document.name).stem))
    question, answer = _question(document.text or "")
    return _finished(document, plain, question=question, answer=answer)


def _finished(
    document: Document, plain: Mapping[str, Any], *, question: str, answer: str
) -> Scenario:
    document.value = plain
    found = from_document(Scenario, document)
    scenario = dataclasses.replace(found, question=question, answer=answer, folder=document.folder)
    check(scenario, document)
    return scenario


def _question(text: str) -> tuple[str, str]:
    """Return the comment that opens a text: what it asks, and what stands after `Answer:`."""
    parts: tuple[list[str], list[str]] = ([], [])
    place = 0
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        words = line[1:].strip()
        if line.startswith("#:"):
            continue
        if words.startswith(_ANSWER):
            place, words = 1, words.removeprefix(_ANSWER)
        parts[place].append(words)
    question, answer = (" ".join(" ".join(part).split()) for part in parts)
    return question, answer


def _comment(text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


def _builtin_names() -> list[str]:
    folder = resources.files("simulator.scenario").joinpath("builtin")
    names = [item.name.removesuffix(".toml") for item in folder.iterdir()]
    return sorted(names, key=lambda name: (name != "everyday", name))


def _builtin_text(name: str) -> str:
    folder = resources.files("simulator.scenario").joinpath("builtin")
    return folder.joinpath(f"{name}.toml").read_text("utf-8")


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or (at == 0) != (path[at] not in ".["):
            raise InputError(f'path = {path!r} must be such as "clients.browsers.count"')
        word = next(group for group in match.groups() if group is not None)
        steps.append(int(word) if match[3] is not None else word)
        at = match.end()
    if not steps:
        raise InputError('path = "" must be such as "clients.browsers.count"')
    return steps


def _entered(target: Any, step: str | int, done: list[str | int]) -> str | int:  # noqa: ANN401 # reason: any TOML value
    """Return the key or index that a step of a path means within `target`."""
    here = path_text(tuple(done))
    if isinstance(target, dict):
        return str(step)
    if not isinstance(target, list):
        raise InputError(f"{here} has no parts; there is no {path_text((*done, step))}")
    if isinstance(step, int):
        if step >= len(target):
            raise InputError(f"{here} has {len(target)} elements; the last is {len(target) - 1}")
        return step
    names = [item.get("name") for item in target if isinstance(item, dict)]
    if step not in names:
        known = [name for name in names if isinstance(name, str)]
        raise InputError(f"{here} has no element {step!r}{did_you_mean(step, known)}")
    return names.index(step)


def _with_absolute_files(value: Any) -> Any:  # noqa: ANN401 # reason: any part of a scenario
    if isinstance(value, Include):
        return dataclasses.replace(value, path=str(value.file.resolve()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {
            field.name: _with_absolute_files(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
        return dataclasses.replace(value, **changes)
    if isinstance(value, dict):
        return {key: _with_absolute_files(item) for key, item in value.items()}
    if type(value) is tuple:
        return tuple(_with_absolute_files(item) for item in value)
    return value
