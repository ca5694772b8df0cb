"""What an answer holds: records, identifiers, and members of them.

Where an answer to a request that should be accepted has another form, these raise `Inconclusive`:
the check that they serve is about something else.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeGuard

from conformance.context.check import Absent, Inconclusive
from conformance.messages.exchange import Exchange, parsed_or_none
from engine.messages import Json

UUID: Final = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
)

_NUMBER: Final = re.compile("[0-9]{12,}")
_BETWEEN_DIGITS: Final = re.compile("(?<=[0-9])[ .-](?=[0-9])")


def is_uuid(text: object) -> bool:
    """Whether it is a UUID string (REC-ID)."""
    return isinstance(text, str) and UUID.fullmatch(text) is not None


def is_identifier(answer: object, sent: object) -> bool:
    """Whether an answer can be the identifier of a value: a string other than the value itself.

    Only the checks of REC-ID require a UUID.
    """
    return isinstance(answer, str) and bool(answer) and answer != sent


def is_request(body: Any) -> TypeGuard[dict[str, Any]]:  # noqa: ANN401 # reason: any JSON
    """Whether a part of a body is a token request object."""
    return isinstance(body, dict) and "type" in body


def parts(body: Any) -> Collection[Any]:  # noqa: ANN401 # reason: any JSON
    """Return what a plain object or an array holds; nothing for any other part of a body."""
    if isinstance(body, dict) and not is_request(body):
        return body.values()
    return body if isinstance(body, list) else ()


def elements(body: Any, answer: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 # reason: any JSON
    """Yield each string and token request object of a body with its part of the answer.

    Parts that the answer does not mirror are left out.

    >>> list(elements({"a": ["x"], "b": "y"}, {"a": ["1"]}))
    [('x', '1')]
    """
    if isinstance(body, str) or is_request(body):
        yield body, answer
    elif isinstance(body, dict) and isinstance(answer, dict):
        for key, part in body.items():
            if key in answer:
                yield from elements(part, answer[key])
    elif isinstance(body, list) and isinstance(answer, list):
        for part, given in zip(body, answer, strict=False):
            yield from elements(part, given)


def elements_in(body: Json) -> Iterator[Any]:
    """Yield the strings and token request objects of a body, in document order."""
    return (part for part, _ in elements(body, body))


def records_in(answer: Json) -> Iterator[dict[str, Any]]:
    """Yield the token records of an answer, wherever they stand."""
    if isinstance(answer, dict) and isinstance(answer.get("_extras"), dict) and "id" in answer:
        yield answer
    elif isinstance(answer, dict | list):
        for part in answer.values() if isinstance(answer, dict) else answer:
            yield from records_in(part)


def accepted(exchange: Exchange) -> Json:
    """Return the answer's JSON; raises `Inconclusive` if the request was not accepted."""
    if not exchange.ok:
        raise Inconclusive(f"a request that should be accepted got {exchange.status}")
    try:
        answer: Json = exchange.json
    except ValueError:
        raise Inconclusive("the answer to an accepted request is not JSON") from None
    return answer


def record_of(exchange: Exchange) -> dict[str, Any]:
    """Return the record in an answer; raises `Inconclusive` if the answer is not a record."""
    record = accepted(exchange)
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        raise Inconclusive("the answer to a token request object is not a record")
    return record


def records_of(exchange: Exchange, count: int) -> list[dict[str, Any]]:
    """Return the records of an array; raises `Inconclusive` unless there are `count`."""
    records = accepted(exchange)
    if not isinstance(records, list) or len(records) != count:
        raise Inconclusive(
            f"the answer to {count} token request objects is not an array of {count}"
        )
    if not all(
        isinstance(record, dict) and isinstance(record.get("id"), str) for record in records
    ):
        raise Inconclusive("the answer to token request objects has elements that are not records")
    return records


def identifiers(exchange: Exchange, count: int) -> list[str]:
    """Return the identifiers in an answer; raises `Inconclusive` unless there are `count`."""
    answer = accepted(exchange)
    texts = [text for text in answer if isinstance(text, str)] if isinstance(answer, list) else []
    if answer != texts or len(texts) != count:
        raise Inconclusive(f"the answer to {count} strings is not an array of {count} identifiers")
    return texts


def member_of(exchange: Exchange, name: str) -> Any:  # noqa: ANN401 # reason: any JSON
    """Return a member of the object in an accepted answer, None where there is none."""
    try:
        return exchange.json[name] if exchange.ok else None
    except (ValueError, LookupError, TypeError):
        return None


def text_of(exchange: Exchange, name: str) -> str | None:
    """Return a member of the object in an accepted answer if it is a string, else None."""
    member = member_of(exchange, name)
    return member if isinstance(member, str) else None


def flag_of(record: Mapping[str, Any]) -> bool | None:
    """Return `_extras.deduplicated` of a record, None where it does not hold a boolean."""
    extras = record.get("_extras")
    flag = extras.get("deduplicated") if isinstance(extras, dict) else None
    return flag if isinstance(flag, bool) else None


def is_known(record: Mapping[str, Any]) -> bool:
    """Whether a record says that its token existed before."""
    return flag_of(record) is True


def is_refused(exchange: Exchange) -> bool:
    """Whether the answer refuses the request: any 4xx but 429 (D-STATUSES)."""
    return exchange.status is not None and 400 <= exchange.status < 500 and not exchange.refused


def text_in(exchange: Exchange) -> str:
    """Return all the text of an answer: its body, the body's decoded strings, and its headers."""
    headers = (f"{name}: {text}" for name, text in exchange.headers.items())
    strings = strings_in(parsed_or_none(exchange.content))
    return "\n".join((exchange.body.decode(errors="replace"), *headers, *strings))


def strings_in(answer: Json) -> Iterator[str]:
    """Yield the strings of JSON, those of names included."""
    if isinstance(answer, str):
        yield answer
    elif isinstance(answer, dict | list):
        inner = (*answer, *answer.values()) if isinstance(answer, dict) else answer
        for part in inner:
            yield from strings_in(part)


def is_secret_in(text: str, secret: str) -> bool:
    """Whether a text holds a secret: as it is, encoded, or a number in groups of digits.

    >>> is_secret_in('{"debug": "YSB2YWx1ZQ=="}', "a value")
    True
    >>> is_secret_in("4242 4242-42424242", "4242424242424242")
    True
    """
    raw = secret.encode()
    if secret in text or base64.b64encode(raw).decode().rstrip("=") in text:
        return True
    if raw.hex() in (lower := text.lower()) or raw.hex("%") in lower:
        return True
    return _NUMBER.fullmatch(secret) is not None and secret in _BETWEEN_DIGITS.sub("", text)


def must_be_there(name: str, exchange: Exchange) -> None:
    """Raise `Absent` if the deployment does not have the operation.

    That is not a failure: the specification gives method and path of `POST /tokenize` only.
    """
    if exchange.is_absent:
        asked = f"{exchange.ask.method} {exchange.ask.path.partition('?')[0]}"
        raise Absent(
            f"the deployment answers {exchange.status} to {asked}, whose method and path are not "
            f"specified; if it offers this under another path, describe it in [requests.{name}]"
        )
