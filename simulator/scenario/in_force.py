"""What a scenario plays: its limit tables and its profile, files and changes put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import InputError
from engine.files import Document, from_document, read_toml, to_plain
from engine.limits import DEFAULT_TABLE, LimitTable
from engine.profile import Profile
from simulator.scenario.model import RuleChange, Scenario

__all__ = ["limit_tables_of", "limits_of", "profile_of"]


def limits_of(scenario: Scenario) -> LimitTable:
    """Return the table that tenants play by default: the scenario's file, or the engine's, changed.

    Raises `InputError` for a file that is no table, or a change that makes none.
    """
    if scenario.limits is None:
        table = LimitTable.default()
    else:
        table = LimitTable.from_toml(scenario.limits.file)
    for rule_id, change in scenario.rules.items():
        table = _changed(table, rule_id, change)
    return table


def limit_tables_of(scenario: Scenario) -> dict[str, LimitTable]:
    """Return every table by name: `Default`, and those of `limit_tables` (QUO-RATE)."""
    others = {
        name: LimitTable.from_toml(include.file) for name, include in scenario.limit_tables.items()
    }
    return {DEFAULT_TABLE: limits_of(scenario), **others}


def profile_of(scenario: Scenario) -> Profile:
    """Return the profile: the scenario's file, or the engine's, with the scenario's choices."""
    profile = Profile()
    if scenario.profile is not None:
        profile = from_document(Profile, read_toml(scenario.profile.file))
    if not scenario.choices:
        return profile
    plain = to_plain(profile)
    merged = plain | {name: plain[name] | fields for name, fields in scenario.choices.items()}
    return from_document(Profile, Document(merged))


def _changed(table: LimitTable, rule_id: str, change: RuleChange) -> LimitTable:
    if change.off:
        gone = table[rule_id]
        return LimitTable(tuple(rule for rule in table if rule is not gone))
    values: Mapping[str, Any] = {
        "rate": change.rate,
        "action": change.action,
        "block_ns": change.block_ns,
        "algorithm": change.algorithm,
        "burst_requests": change.burst,
        "shadow": change.shadow,
    }
    changes = {name: value for name, value in values.items() if value is not None}
    if change.action == "throttle":
        changes["block_ns"] = None
    try:
        return table.replace_rule(rule_id, **changes)
    except InputError as error:
        raise InputError(f"rules.{error}") from None
