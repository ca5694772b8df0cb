"""Shrinking: smaller sequences that may still show a difference, the most useful first.

Steps are left out first, then parts of bodies; then odd values are replaced by plain ones. So what
remains of a body is what the difference needs, and names its clause.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from conformance.model.play import SequenceStep
from conformance.model.values import Join, Node, Ref, Sealed, TextValue, parts_of

_FIELDS: Final = ("token_intent_id", "data", "encrypted", "type")
"""Fields that a token request object needs; the others can be left out."""


def smaller(steps: Sequence[SequenceStep]) -> Iterator[list[SequenceStep]]:
    """Yield sequences that are smaller; first the last step with those that it refers to."""
    needed = _needed(steps)
    if len(needed) < len(steps):
        yield needed
    for place in range(len(steps) - 2, -1, -1):
        yield [*steps[:place], *steps[place + 1 :]]
    for place, step in enumerate(steps):
        if step.raw is not None:
            continue
        for body in _smaller_bodies(step.payload):
            yield [*steps[:place], _with_payload(step, body), *steps[place + 1 :]]
    for text in dict.fromkeys(_texts(steps)):
        for wraps in dict.fromkeys(((), text.wraps[:1], text.wraps[-1:])):
            plain = TextValue(text.core, wraps)
            if len(wraps) < len(text.wraps) and not _is_card_part(text):
                yield [_replaced(step, text, plain) for step in steps]


def _needed(steps: Sequence[SequenceStep]) -> list[SequenceStep]:
    """Return the last step and the steps whose identifiers it needs, in order."""
    wanted = {steps[-1].number}
    for step in reversed(steps):
        if step.number in wanted:
            nodes = (step.role, step.body, step.values)
            wanted |= {
                part.step for node in nodes for part in parts_of(node) if isinstance(part, Ref)
            }
    return [step for step in steps if step.number in wanted]


def _with_payload(step: SequenceStep, body: Node) -> SequenceStep:
    if step.body is not None:
        return dataclasses.replace(step, body=body)
    return dataclasses.replace(step, values={**step.values, "value": body})


def _smaller_bodies(body: Node) -> Iterator[Node]:
    """Yield a body without a part, or with a part made smaller."""
    if isinstance(body, dict) and "type" in body:
        yield from _smaller_objects(body)
    elif isinstance(body, dict):
        if len(body) > 1:
            yield from (_without(body, name) for name in body)
        for name, part in body.items():
            if len(body) == 1 and isinstance(part, dict | list):
                yield part
            yield from ({**body, name: less} for less in _smaller_bodies(part))
    elif isinstance(body, list):
        for place, part in enumerate(body):
            before, after = body[:place], body[place + 1 :]
            if before or after:
                yield [*before, *after]
            elif isinstance(part, dict | list):
                yield part
            yield from ([*before, less, *after] for less in _smaller_bodies(part))


def _smaller_objects(element: dict[str, Node]) -> Iterator[Node]:
    """Yield simpler forms of a token request object, a string the simplest."""
    if set(element) == {"type", "data"} and isinstance(element["data"], TextValue):
        yield element["data"]
    elif isinstance(element.get("data"), dict) and isinstance(
        element["data"].get("number"), TextValue
    ):
        yield element["data"]["number"]
    yield from (_without(element, name) for name in element if name not in _FIELDS)
    if next(iter(element)) != "type":
        yield {"type": element["type"], **element}
    data, sealed = element.get("data"), element.get("encrypted")
    if isinstance(data, dict):
        yield from ({**element, "data": _without(data, name)} for name in data if name != "number")
    if isinstance(sealed, Sealed):
        yield {**_without(element, "encrypted"), "data": sealed.data}


def _without(part: dict[str, Node], name: str) -> dict[str, Node]:
    return {key: value for key, value in part.items() if key != name}


def _texts(steps: Sequence[SequenceStep]) -> Iterator[TextValue]:
    for step in steps:
        for node in (step.body, step.values):
            yield from (
                part for part in parts_of(node) if isinstance(part, TextValue) and part.wraps
            )


def _is_card_part(text: TextValue) -> bool:
    return text.wraps[0].startswith(("card", "cvc")) and len(text.wraps) == 1


def _replaced(step: SequenceStep, text: TextValue, plain: TextValue) -> SequenceStep:
    def change(node: Node) -> Node:
        return plain if node == text else node

    return dataclasses.replace(
        step, body=_mapped(step.body, change), values=_mapped(step.values, change)
    )


def _mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    if isinstance(node, dict):
        return {key: _mapped(part, change) for key, part in node.items()}
    if isinstance(node, list):
        return [_mapped(part, change) for part in node]
    if isinstance(node, Join):
        return Join(tuple(change(part) for part in node.parts))
    if isinstance(node, Sealed):
        return Sealed(node.number, _mapped(node.data, change), node.is_broken)
    return change(node)
