"""Choices of the deployment: which fields of the profile were told or discovered.

A profile always has a value for every choice; what matters to a run is which of them are known.
So a discovered profile's file holds the known ones alone, and a file that is read back makes
known what stands in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from engine import Profile
from engine.files import from_document, read_toml, to_plain, to_toml

__all__ = ["known_to_toml", "read_profile", "told_by"]


def _fields(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """Yield section, field and the field's key in a file (units are not in it)."""
    for section in dataclasses.fields(profile):
        for item in dataclasses.fields(getattr(profile, section.name)):
            key = item.name.removesuffix("_ns").removesuffix("_bytes")
            yield section.name, item.name, key


def told_by(profile: Profile) -> set[str]:
    """Return the choices in which a profile differs from the default, as `section.field`."""
    standard = Profile()
    return {
        f"{section}.{name}"
        for section, name, _ in _fields(profile)
        if getattr(getattr(profile, section), name) != getattr(getattr(standard, section), name)
    }


def read_profile(path: str | Path) -> tuple[Profile, set[str]]:
    """Return a file's profile and the choices that it names; raises `InputError`."""
    document = read_toml(path)
    profile: Profile = from_document(Profile, document)
    named = {
        f"{section}.{name}"
        for section, name, key in _fields(profile)
        if {key, name} & set(document.value.get(section, ()))
    }
    return profile, named


def known_to_toml(profile: Profile, known: Collection[str]) -> str:
    """Return the text of a profile file with the known choices; the engine loads it."""
    plain = to_plain(profile)
    found: dict[str, dict[str, Any]] = {}
    for section, name, key in _fields(profile):
        values = plain.get(section, {})
        held = key if key in values else name
        if f"{section}.{name}" in known and held in values:
            found.setdefault(section, {})[held] = values[held]
    return "#:schema profile.schema.json\n" + to_toml(found)
