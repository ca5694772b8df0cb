"""Scripts: short sequences that every search plays first, so that chance decides nothing basic.

Each form of a value is stored and read back, as a string and as `data`; each odd key comes back;
equal values are deduplicated by each kind of element; deleted and refused ones are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from conformance.model.generator import ODD_KEYS, Offer
from conformance.model.play import SequenceStep
from conformance.model.values import FORMS, Join, Node, Ref, Sealed, TextValue

_BATCH: Final = 5
_DIGITS: Final = (13, 14, 15, 16, 19)


def scripts(offer: Offer) -> Iterator[list[SequenceStep]]:
    """Yield the scripts that a deployment can be sent."""
    reader = "private_reader" if "private_reader" in offer.roles else None
    can_read = "detokenize" in offer.operations - offer.mapped
    if reader is not None and can_read:
        yield from _values(reader)
    yield from _keys(reader or "private_prod")
    if {"dedup", "dedup_reader"} <= offer.roles:
        for element in _elements(offer):
            yield from _duplicates(element)
        yield from _variants()
    if reader is not None and "flag" in offer.fields:
        yield from _refusals(reader, offer)
        if offer.can_encrypt:
            yield _sealed_twice(reader, offer)
    if "private_one_container" in offer.roles and "containers" in offer.fields:
        yield from _containers(offer)
    yield from _counts(reader or "private_prod", offer)
    if reader is not None and can_read:
        yield from _expressions(reader)


def _steps(*asked: tuple[str, Node]) -> list[SequenceStep]:
    return [
        SequenceStep(n, "tokenize", role, {"value": body}) for n, (role, body) in enumerate(asked)
    ]


def _holes(refs: Sequence[Ref], before: str = "{{ ", after: str = " }}") -> dict[str, Node]:
    return {f"v{place}": Join((before, ref, after)) for place, ref in enumerate(refs)}


def _values(reader: str) -> Iterator[list[SequenceStep]]:
    """Store each form, as a string and as `data`, and read it back."""
    for start in range(0, len(FORMS), _BATCH):
        texts: list[Node] = [
            TextValue(place + 1, (form,))
            for place, form in enumerate(FORMS[start : start + _BATCH])
        ]
        refs = tuple(Ref(0, place) for place in range(len(texts)))
        for body in (texts, [{"type": "token", "data": text} for text in texts]):
            read = SequenceStep(1, "detokenize", reader, body=_holes(refs))
            yield [*_steps((reader, body)), read]


def _keys(role: str) -> Iterator[list[SequenceStep]]:
    for start in range(0, len(ODD_KEYS), _BATCH):
        keys = ODD_KEYS[start : start + _BATCH]
        yield _steps((role, {key: TextValue(place + 1) for place, key in enumerate(keys)}))


def _card(number: int = 1, digits: int = 16) -> dict[str, Node]:
    return {
        "number": TextValue(number, (f"card {digits}",)),
        "expiration_month": 12,
        "expiration_year": 2031,
        "cvc": TextValue(number + 1, ("cvc 3",)),
    }


def _elements(offer: Offer) -> Iterator[dict[str, Node]]:
    """Yield an element of each kind."""
    yield {"type": "token", "data": TextValue(1)}
    yield {"type": "token", "data": TextValue(1), "search_indexes": ["{{ data }}"]}
    yield {"type": "token", "data": TextValue(1), "fingerprint_expression": "{{ data }}"}
    for digits in _DIGITS:
        yield {"type": "card", "data": _card(1, digits)}
    if "containers" in offer.fields:
        tokens = offer.profile.tokens
        path = (offer.containers or ("/pci/",))[0]
        value: Node = path if tokens.container_form == "string" else [path]
        yield {"type": "token", "data": TextValue(1), tokens.container_field: value}


def _duplicates(element: dict[str, Node]) -> Iterator[list[SequenceStep]]:
    """Send an element by each key of a tenant, alone and inside an array, and by another tenant."""
    first = {**element, "metadata": {"o": "1"}}
    later = {**element, "metadata": {"o": "2"}}
    steps = _steps(
        ("dedup_reader", first),
        ("dedup", later),
        ("dedup", [{"type": "token", "data": TextValue(9)}, later]),
        ("dedup_reader", later),
        ("private_prod", later),
        ("dedup", {"a": [later]}),
    )
    steps[3].wait_ns = 3_000_000_000  # so that a time of its own would differ
    yield steps
    yield [
        *_steps(("dedup_reader", first)),
        SequenceStep(1, "delete", "dedup_reader", {"id": Ref(0, 0)}),
        SequenceStep(2, "tokenize", "dedup", {"value": later}),
    ]


def _variants() -> Iterator[list[SequenceStep]]:
    """Values that differ in case, form or at an end are different values."""
    for wraps in (("upper case",), ("lower case",), ("space after",), ("NUL and a",)):
        yield _steps(("dedup", [TextValue(1), TextValue(1, wraps)]))
    yield _steps(("dedup", [TextValue(1, ("composed",)), TextValue(1, ("decomposed",))]))
    expression: dict[str, Node] = {"type": "token", "fingerprint_expression": "{{ data }}"}
    bodies = [{**expression, "data": TextValue(1, wraps)} for wraps in ((), ("upper case",), ())]
    yield _steps(("dedup_reader", bodies))


def _refusals(reader: str, offer: Offer) -> Iterator[list[SequenceStep]]:
    """What stands beside an invalid element is not created."""
    flag: dict[str, Node] = {offer.profile.dedup.flag_name: True}
    bad: list[Node] = [
        {"type": "token"},
        {"type": "no-such-type", "data": TextValue(8)},
        {"type": "card", "data": {"number": "42 42"}},
        {"type": "token", "data": TextValue(8), "metadata": {"a": 5}},
    ]
    if offer.can_encrypt:
        bad.append({"type": "token", "encrypted": Sealed(7, TextValue(8), is_broken=True)})
    for wrong in bad:
        again: list[Node] = [{"type": "token", "data": TextValue(n), **flag} for n in (1, 2)]
        yield _steps((reader, [TextValue(1), wrong, TextValue(2)]), (reader, again))
    if "private_no_permission" in offer.roles:
        body: Node = {"type": "token", "data": TextValue(1)}
        yield _steps(("private_no_permission", body), (reader, {**body, **flag}))


def _sealed_twice(reader: str, offer: Offer) -> list[SequenceStep]:
    """An encrypted element is deduplicated as a plain one is."""
    flag: dict[str, Node] = {offer.profile.dedup.flag_name: True}
    steps = _steps(
        (reader, {"type": "token", "data": TextValue(1)}),
        (reader, {"type": "token", "encrypted": Sealed(1, TextValue(1)), **flag}),
        (reader, [{"type": "token", "encrypted": Sealed(2, TextValue(2))}]),
        (reader, {"type": "token", "data": TextValue(2), **flag}),
    )
    if "private_no_permission" in offer.roles:
        sealed = {"type": "token", "encrypted": Sealed(3, TextValue(3))}
        known = {"type": "token", "data": TextValue(1), **flag}
        steps += [
            SequenceStep(4, "tokenize", "private_no_permission", {"value": sealed}),
            SequenceStep(5, "tokenize", "private_no_permission", {"value": known}),
            SequenceStep(
                6, "tokenize", "private_no_permission", {"value": {**known, "metadata": {"a": "b"}}}
            ),
        ]
    return steps


def _containers(offer: Offer) -> Iterator[list[SequenceStep]]:
    """A key of one container creates nothing in another one, wherever the element stands."""
    tokens = offer.profile.tokens
    is_text = tokens.container_form == "string"
    inside: Node = offer.narrow if is_text else [offer.narrow]
    near = offer.narrow.rstrip("/") + ("2/" if offer.narrow.endswith("/") else "2")
    others = [path for path in offer.containers if path != offer.narrow] or [near]
    outside: Node = others[0] if is_text else [others[0]]

    def token(number: int, path: Node) -> dict[str, Node]:
        return {"type": "token", "data": TextValue(number), tokens.container_field: path}

    good, wrong = token(1, inside), token(2, outside)
    for body in (good, wrong, [good, wrong], [wrong, good], {"a": good, "b": [{"c": wrong}]}):
        yield _steps(("private_one_container", body))
    yield _steps(("private_one_container", [good, TextValue(3)]))


def _counts(reader: str, offer: Offer) -> Iterator[list[SequenceStep]]:
    """As many elements of a kind as the quota allows are accepted, more are refused."""
    for count in (_BATCH, _BATCH + 1):
        kinds: list[list[Node]] = [
            [TextValue(number) for number in range(1, count + 1)],
            [{"type": "token", "data": TextValue(number)} for number in range(1, count + 1)],
            [{"type": "card", "data": _card(2 * number)} for number in range(1, count + 1)],
        ]
        if offer.can_encrypt:
            sealed = [Sealed(number, TextValue(number)) for number in range(1, count + 1)]
            kinds.append([{"type": "token", "encrypted": part} for part in sealed])
        for elements in kinds:
            yield _steps((reader, elements))
            yield _steps((reader, {"a": elements[:3], "b": {"c": elements[3:]}}))


def _expressions(reader: str) -> Iterator[list[SequenceStep]]:
    """As many expressions as the quota allows, alone and inside a text."""
    refs = tuple(Ref(place // 3, place % 3) for place in range(_BATCH + 1))
    made = _steps(
        (reader, [TextValue(n) for n in (1, 2, 3)]), (reader, [TextValue(n) for n in (4, 5, 6)])
    )
    for before, after in (("{{ ", " }}"), ("a {{ ", " }} b")):
        for count in (_BATCH, _BATCH + 1):
            used = refs[:count]
            body = _holes(used, before, after)
            yield [*made, SequenceStep(2, "detokenize", reader, body=body)]
