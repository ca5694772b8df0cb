"""What a deployment may do wrong: changes of its answers, and of what it is asked."""

from __future__ import annotations

import dataclasses
import itertools
import json
import uuid
from collections.abc import Callable
from typing import Any

from conformance.wire.exchange import Ask
from conformance.wire.transport import Answer
from tests.conformance.checks.broken import Change, Redirect, changed_json

OTHER_ID = "0b0c8f34-6f0e-4a52-9f3a-2f2f6c1f7f10"


def text(ask: Ask) -> str:
    if isinstance(ask.body, bytes):
        return ask.body[:200].decode(errors="replace")
    return json.dumps(ask.body)


def mapped(change: Callable[[Any], Any]) -> Change:
    """Change the JSON of every accepted answer to tokenize."""

    def changed(ask: Ask, answer: Answer) -> Answer:
        return changed_json(answer, change) if ask.path == "/tokenize" else answer

    return changed


def walked(change: Callable[[Any], Any]) -> Change:
    """Change every part of every accepted answer to tokenize, the inner ones first."""

    def walk(part: Any) -> Any:
        if isinstance(part, list):
            part = [walk(one) for one in part]
        elif isinstance(part, dict) and "_extras" not in part:
            part = {key: walk(one) for key, one in part.items()}
        return change(part)

    return mapped(walk)


def records(change: Callable[[dict[str, Any]], Any]) -> Change:
    """Change every record in every accepted answer to tokenize."""

    def changed(part: Any) -> Any:
        if isinstance(part, dict) and "_extras" in part:
            change(part)
        return part

    return walked(changed)


def with_fields(**fields: Any) -> Change:
    return records(lambda record: record.update(fields))


def deduplicated(change: Callable[[dict[str, Any]], Any]) -> Change:
    """Change the records of deduplicated tokens."""
    return records(
        lambda record: change(record) if record["_extras"]["deduplicated"] is True else None
    )


def answered(status: int, when: Callable[[Ask], bool]) -> Change:
    """Give another status to what is asked so."""

    def changed(ask: Ask, answer: Answer) -> Answer:
        if not when(ask):
            return answer
        return Answer(answer.sent_ns, answer.received_ns, status, {}, b'{"title": "no"}')

    return changed


def accepted(when: Callable[[Ask], bool]) -> Change:
    """Accept what is asked so, with a record."""

    def changed(ask: Ask, answer: Answer) -> Answer:
        if not when(ask):
            return answer
        raw = json.dumps({"id": OTHER_ID}).encode()
        return Answer(answer.sent_ns, answer.received_ns, 200, answer.headers, raw)

    return changed


def as_key(label: str, when: Callable[[Ask], bool] = lambda ask: ask.key is not None) -> Redirect:
    """Answer as if another key had asked."""
    return lambda ask: dataclasses.replace(ask, key=label) if when(ask) else ask


def backwards(part: Any) -> Any:
    return part[::-1] if isinstance(part, list) else part


def without_last(part: Any) -> Any:
    return part[:-1] if isinstance(part, list) else part


def lower_keys(part: Any) -> Any:
    is_plain = isinstance(part, dict) and "_extras" not in part
    return {key.lower(): one for key, one in part.items()} if is_plain else part


def turned(part: Any) -> Any:
    """Hand each key the value of the next."""
    if not isinstance(part, dict) or "_extras" in part or len(part) < 2:
        return part
    values = list(part.values())
    return dict(zip(part, [*values[1:], values[0]], strict=True))


def as_record(part: Any) -> Any:
    return {"id": part, "type": "token"} if isinstance(part, str) else part


def as_identifier(part: Any) -> Any:
    return part["id"] if isinstance(part, dict) and "_extras" in part else part


def one_identifier(part: Any) -> Any:
    return OTHER_ID if isinstance(part, str) else part


def new_identifier(part: Any) -> Any:
    return str(uuid.uuid4()) if isinstance(part, str) else part


def first_four(record: dict[str, Any]) -> None:
    for name in ("mask", "data"):
        if isinstance(record.get(name), dict):
            number = record[name]["number"]
            record[name]["number"] = "4242" + "X" * (len(number) - 4)


def with_cvc(record: dict[str, Any]) -> None:
    if isinstance(record.get("mask"), dict):
        record["mask"]["cvc"] = "***"


def naive(record: dict[str, Any]) -> None:
    record["created_at"] = record["created_at"][:19]


def in_a_header(ask: Ask, answer: Answer) -> Answer:
    """Say in a header what was sent."""
    headers = {**answer.headers, "X-Debug": text(ask)[:4_000]}
    return Answer(answer.sent_ns, answer.received_ns, answer.status, headers, answer.body)


def in_the_clear(name: str) -> Change:
    """Show under a name of its own what was sent as `data`."""

    def changed(ask: Ask, answer: Answer) -> Answer:
        data = ask.body.get("data") if isinstance(ask.body, dict) else None
        if not isinstance(data, str | dict):
            return answer
        return changed_json(answer, lambda record: {**record, name: data})

    return changed


def container_of(path: Callable[[], str]) -> Change:
    """Show another container in every record."""
    return lambda ask, answer: changed_json(
        answer,
        lambda record: {**record, "containers": [path()]} if isinstance(record, dict) else record,
    )


def quotas_shown(ask: Ask, answer: Answer) -> Answer:
    return changed_json(answer, lambda tenant: {**tenant, "quotas": {"Tokenize Limit": 6}})


def one_job(ask: Ask, answer: Answer) -> Answer:
    if ask.method != "POST" or ask.path != "/account-updater/jobs":
        return answer
    return changed_json(answer, lambda job: {**job, "id": OTHER_ID})


def levels(body: Any) -> int:
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return 1 + max(map(levels, inner), default=0) if isinstance(body, dict | list) else 0


def has(*parts: str) -> Callable[[Ask], bool]:
    return lambda ask: all(part in text(ask) for part in parts)


def after(count: int, when: Callable[[Ask], bool]) -> Callable[[Ask], bool]:
    """True for what is asked so, from the one after `count` on."""
    turn = itertools.count()
    return lambda ask: when(ask) and next(turn) >= count


places = itertools.cycle(["/a/", "/b/"])
