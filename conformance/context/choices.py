"""Choices of the deployment: which fields of the profile were told or discovered.

A profile always has a value for every choice; what matters to a run is which of them are known. So
the file of a discovered profile holds the known choices alone, and reading a file makes its choices
known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from engine import Engine, InputError, LimitTable, ManualClock, Profile
from engine.files import Document, from_document, read_toml, to_plain, to_toml
from engine.identity import normal_container

NOT_DISCOVERED: Final[Mapping[str, str]] = {
    # Nothing that is sent or answered depends on them in a way that a client could see.
    "limits.counters_limit": "it would take as many parties as the bound holds",
    "limits.edges": "the readings differ in one nanosecond, which no client can hit",
    "limits.or_counter": "LIM-IP refuses where the IP counter of LIM-PRIVATE would",
    "http.ipv6_prefix_bits": "it takes two IPv6 addresses of one prefix, which no target names",
    "dedup.setting_name": "a tenant's setting is the operator's, not seen from outside",
    # A reading would be a failure: the deployment is judged by it instead (study).
    "nodes.sharing": "judged, not discovered: a node that counts alone admits beyond its limits",
    "nodes.count": "nodes that count exactly decide as one",
    "nodes.balance": "nodes that count exactly decide as one",
    "nodes.every_ns": "judged, not discovered: as nodes.sharing",
    "nodes.lag_ns": "judged, not discovered: as nodes.sharing",
    "nodes.race_ns": "judged, not discovered: as nodes.sharing",
    # The clause gives the value.
    "outside.destination_timeout_ns": "judged, not discovered: PRX-TIMEOUT",
    "outside.reactor_timeout_ns": "judged, not discovered: RCT-TIMEOUT",
    "outside.hot_concurrency": "judged, not discovered: RCT-HOT",
    "account_updater.file_limit_bytes": "judged, not discovered: ACC-FILE",
    # The target's file says how to ask.
    "http.key_header": "named by the target: without it nothing can be asked",
    "http.proxy_key_header": "named by the target",
    "dedup.flag_name": "named by the profile: any name is possible",
    "tokens.extra_types": "any name is possible for a type",
    "http.idempotency": "no clause mentions the header",
    "http.idempotency_kept_ns": "a day is longer than a run",
    "identity.grant_scope": "it takes an application that grants beyond its own right",
    # Too heavy, or too long, for a service that others use as well.
    "http.cors": "a CORS request needs an origin that the operator lists",
    "http.body_limit_bytes": "bodies of many megabytes burden a deployment",
    "http.target_limit": "paths of many kilobytes burden a deployment",
    "tokens.container_limit": "no clause mentions paths of hundreds of characters",
    "tokens.elements_limit": "bodies of many elements burden a deployment",
    "tokens.values_limit": "bodies of many values burden a deployment",
    "tokens.encrypted_limit": "many encrypted payloads burden a deployment",
    "outside.answer_limit_bytes": "answers of many megabytes burden a deployment",
    "http.proxy_body_limit_bytes": "bodies of many megabytes burden a deployment",
    "outside.reactor_timeout_status": "a reactor that runs for 30 s burdens a deployment",
    "outside.cold_start_ns": "it cannot be separated from the run time of the code",
    "outside.keep_hot_ns": "it cannot be separated from the run time of the code",
    "outside.instances_cap": "so many concurrent invocations burden a deployment",
    "account_updater.upload_valid_ns": "an hour is longer than a run",
    "account_updater.job_base_ns": "it depends on the operator's machine",
    "account_updater.job_row_ns": "it depends on the operator's machine",
}
"""Choices that no check reports a reading of, and why."""


def _fields(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """Yield section, field and the field's key in a file (units are not in it)."""
    for section in dataclasses.fields(profile):
        for item in dataclasses.fields(getattr(profile, section.name)):
            key = item.name.removesuffix("_ns").removesuffix("_bytes")
            yield section.name, item.name, key


def line_of(choice: str, value: object) -> str:
    """Return a choice, as `section.field`, with a value as a profile's file has it.

    >>> line_of("limits.algorithm", "gcra"), line_of("outside.keep_hot_ns", 60_000_000_000)
    ('limits.algorithm = "gcra"', 'outside.keep_hot = "1m"')
    """
    section, _, name = choice.partition(".")
    field = next(field for field in _fields(Profile()) if field[:2] == (section, name))
    try:
        plain = to_plain(Profile().replace(**{section: {name: value}}))[section]
    except InputError:
        plain = {field[2]: value}
    if field[2] not in plain:
        return f"{section}.{field[2]} is left out"
    return f"{section}.{to_toml({field[2]: plain[field[2]]}).rstrip()}"


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
    _check(profile, document)
    named = {
        f"{section}.{name}"
        for section, name, key in _fields(profile)
        if key in document.value.get(section, ())
    }
    return profile, named


def playable(profile: Profile) -> Profile:
    """Return the profile in a form that the engine of this process accepts.

    A deployment may give its containers any names, but the engine needs paths. Comparisons with the
    engine's answers do not depend on these names.
    """
    standard = Profile().tokens
    own = {
        name: getattr(standard, name)
        for name in ("container_default_token", "container_default_card")
        if normal_container(getattr(profile.tokens, name), profile.tokens.container_limit) is None
    }
    return profile.replace(tokens=own) if own else profile


def _check(profile: Profile, document: Document) -> None:
    """Refuse, with its place in the file, a value that the engine would refuse during a run."""
    try:
        Engine(profile=playable(profile), limits=LimitTable(()), clock=ManualClock(), seed=1)
    except InputError as error:
        message = str(error)
        for section, name, key in _fields(profile):
            thing = f"profile.{section}.{name}"
            value = getattr(getattr(profile, section), name)
            if message.startswith(thing) and key in document.value.get(section, ()):
                document.spot(section, key).fail(message.removeprefix(f"{thing} = {value!r} "))
        raise InputError(f"{document.name}: {message}") from None


def known_to_toml(profile: Profile, known: Collection[str]) -> str:
    """Return the text of a profile file with the known choices; the engine loads it.

    Choices that no run can discover follow as comments, with the reason.
    """
    plain = to_plain(profile)
    tables: dict[str, dict[str, Any]] = {}
    for section, name, key in _fields(profile):
        values = plain.get(section, {})
        if f"{section}.{name}" in known and key in values:
            tables.setdefault(section, {})[key] = values[key]
    unknown = [
        f"# {choice}: {why}\n" for choice, why in NOT_DISCOVERED.items() if choice not in known
    ]
    text = "#:schema profile.schema.json\n" + to_toml(tables)
    return f"{text}\n# Not discovered, and why:\n{''.join(unknown)}"
