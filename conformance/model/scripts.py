"""Scripts: short sequences that every search plays first, so that chance decides nothing basic.

Each form of a value is stored and read back, as a string and as `data`; each value has its own
identifier at its place; each odd key and each field of a request object comes back; each invalid
object is refused; equal values are deduplicated by each kind of element; deleted and refused ones
are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from conformance.model.generator import ODD_KEYS, ODD_REQUESTS, Offer
from conformance.model.play import SequenceStep
from conformance.model.values import FORMS, Join, Node, Ref, Sealed, TextValue, card_data

_BATCH: Final = 5
_LATER_NS: Final = 3_000_000_000
_PLAIN_ELEMENTS: Final = 2
_DIGITS: Final = (13, 14, 15, 16, 19)
_TEXT: Final = TextValue(8)
_METADATA: Final[tuple[dict[str, Node], ...]] = (
    {},
    {"a": "1"},
    {"Order": "42", "order": "43", "type": "no-token"},
    {"\u043a\u043b\u044e\u0447": "\u00e9\u00df \U0001f511", "quote": '"\\/'},
    {"empty": "", "space": " ", "long": "x" * 200, "lines": "a\nb"},
    {"composed \u00e9": "\u00e9", "e\u0301": "e\u0301 \ufb01 \u212b", " edges ": " both "},
)
_WRONG_CARDS: Final[tuple[Node, ...]] = (
    *({"number": number} for number in ("42 42", "4242x24242424242", 4242424242424242, "")),
    {"expiration_month": 12},
    {"number": TextValue(8, ("card 16",)), "expiration_month": "12"},
    {"number": TextValue(8, ("card 16",)), "expiration_month": 12.5},
    {"number": TextValue(8, ("card 16",)), "expiration_year": "2031"},
    {"number": TextValue(8, ("card 16",)), "cvc": 731},
    TextValue(8, ("card 16",)),
)
_WRONG_FIELDS: Final[tuple[dict[str, Node], ...]] = (
    *({"metadata": value} for value in ({"a": 5}, {"a": {"b": "c"}}, ["a"], "a")),
    *({"search_indexes": value} for value in ("{{ data }}", [5])),
    *({"fingerprint_expression": value} for value in (5, ["{{ data }}"])),
)
_WRONG: Final[tuple[dict[str, Node], ...]] = (
    {"type": "token"},
    {"type": "card", "metadata": {"a": "b"}},
    *({"type": name, "data": _TEXT} for name in ("no-such-type", "", "TOKEN", 5, None)),
    *({"type": "card", "data": data} for data in _WRONG_CARDS),
    *({"type": "token", "data": _TEXT, **field} for field in _WRONG_FIELDS),
    *({"type": "token", "encrypted": value} for value in (5, "hello")),
)
"""Token request objects that every service must refuse."""


_LOOKALIKES: Final = (
    *("true", "null", "0", "-1", "1.0", "1e3", "007", "NaN"),
    *("2026-03-04", "2026-03-04T05:06:07Z", "", " "),
)
"""Strings that careless code takes for other values. They hold nothing that a play makes unique."""


def scripts(offer: Offer) -> Iterator[list[SequenceStep]]:
    """Yield the scripts that a deployment can be sent."""
    reader = "private_reader" if "private_reader" in offer.roles else None
    can_read = "detokenize" in offer.operations - offer.mapped
    if reader is not None and can_read:
        yield from _values(reader, offer)
    role = reader or "private_prod"
    yield from _places(role, offer, can_read=reader is not None and can_read)
    yield from _keys(role)
    yield from _fields(role, offer)
    yield _identifiers(role)
    yield from ([SequenceStep(0, "tokenize", role, **odd)] for odd in ODD_REQUESTS)
    if {"dedup", "dedup_reader"} <= offer.roles:
        for place, element in enumerate(_elements(offer)):
            yield from _duplicates(element, _LATER_NS if place < _PLAIN_ELEMENTS else 0)
        yield from _variants()
    yield from _refusals(role, offer)
    for name in sorted(offer.roles - offer.untold):
        yield _steps((name, [TextValue(1), TextValue(2)]))
    if reader is not None and "flag" in offer.fields and offer.can_encrypt:
        yield _sealed_twice(reader, offer)
    if "private_one_container" in offer.roles and "containers" in offer.fields:
        yield from _containers(offer)
    if reader is not None and {"flag", "containers"} <= offer.fields and _makes_keys(offer):
        yield _reader_elsewhere(reader, offer)
    yield from _counts(reader or "private_prod", offer)
    if reader is not None and can_read:
        yield from _expressions(reader)
    if reader is not None:
        yield from _shown_elsewhere(reader, offer)


def sees_creation(offer: Offer) -> bool:
    """Whether an answer shows if an equal token exists."""
    return "flag" in offer.fields or "dedup" in offer.roles


def _steps(*asked: tuple[str, Node]) -> list[SequenceStep]:
    return [
        SequenceStep(n, "tokenize", role, {"value": body}) for n, (role, body) in enumerate(asked)
    ]


def holes(refs: Sequence[Ref], before: str = "{{ ", after: str = " }}") -> dict[str, Node]:
    """Return the body of a detokenize."""
    return {f"v{place}": Join((before, ref, after)) for place, ref in enumerate(refs)}


def _values(reader: str, offer: Offer) -> Iterator[list[SequenceStep]]:
    """Store each form, as a string and as `data`, and a card of this year; read them back."""
    for start in range(0, len(FORMS), _BATCH):
        texts: list[Node] = [
            TextValue(place + 1, (form,))
            for place, form in enumerate(FORMS[start : start + _BATCH])
        ]
        refs = tuple(Ref(0, place) for place in range(len(texts)))
        for body in (texts, [{"type": "token", "data": text} for text in texts]):
            read = SequenceStep(1, "detokenize", reader, body=holes(refs))
            yield [*_steps((reader, body)), read]
    for start in range(0, len(_LOOKALIKES), _BATCH):
        likes = list[Node](_LOOKALIKES[start : start + _BATCH])
        refs = tuple(Ref(0, place) for place in range(len(likes)))
        bodies: list[Node] = [likes]
        if "flag" in offer.fields:  # else an earlier run's may be found again
            bodies.append([{"type": "token", "data": text} for text in likes])
        for body in bodies:
            read = SequenceStep(1, "detokenize", reader, body=holes(refs))
            yield [*_steps((reader, body)), read]
    this_year = {**card_data(), "expiration_year": offer.year}
    zero_first = {**card_data(3), "cvc": TextValue(4, ("cvc with a zero",))}
    pairs: list[list[Node]] = [
        [{"type": "card", "data": data} for data in (this_year, zero_first)],
    ]
    if offer.can_encrypt:
        token, card = Sealed(1, TextValue(1)), Sealed(2, card_data(2))
        pairs.append([{"type": "token", "encrypted": token}, {"type": "card", "encrypted": card}])
    for pair in pairs:
        read = SequenceStep(1, "detokenize", reader, body=holes((Ref(0, 0), Ref(0, 1))))
        yield [*_steps((reader, pair)), read]


def _places(role: str, offer: Offer, *, can_read: bool) -> Iterator[list[SequenceStep]]:
    """Each value has an identifier of its own, at its place; read back, or stored once more."""
    flag: dict[str, Node] = {offer.profile.dedup.flag_name: True}
    values = [TextValue(n) for n in (1, 2, 3, 4)]
    shapes: tuple[Node, ...] = (
        values,
        {"z": values[0], "a": values[1], "M": values[2], "b": values[3]},
        {"q": [[values[0], values[1]]], "b": {"z": [values[2]]}, "a": values[3]},
        [values[0], {"type": "token", "data": values[1]}, values[2], values[3]],
    )
    for shape in 2 * shapes:  # identifiers may be in order by chance
        steps = _steps((role, shape))
        if can_read:
            refs = tuple(Ref(0, place) for place in range(len(values)))
            steps.append(SequenceStep(1, "detokenize", role, body=holes(refs)))
        elif "flag" in offer.fields:
            again = [{"type": "token", "data": value, **flag} for value in values]
            steps.append(SequenceStep(1, "tokenize", role, {"value": again}))
        yield steps
    yield _steps((role, [{"type": "card", "data": card_data(2 * n)} for n in (1, 2, 3)]))


def _fields(role: str, offer: Offer) -> Iterator[list[SequenceStep]]:
    """Each field of a request object is accepted and comes back as it was supplied."""
    token: dict[str, Node] = {"type": "token", "data": TextValue(1)}
    for metadata in _METADATA:
        yield _steps((role, {**token, "metadata": metadata}))
    indexes: Node = [f"{{{{ data.{name} }}}}" for name in ("number", "expiration_year")]
    card: dict[str, Node] = {"type": "card", "data": card_data(2)}
    for element in (
        {**card, "search_indexes": indexes, "metadata": {"a": "b"}},
        {**card, "search_indexes": indexes[::-1]},
        {**token, "search_indexes": ["{{ data }}"], "fingerprint_expression": "{{ data }}"},
        {**card, "fingerprint_expression": "{{ data.number }}"},
    ):
        yield _steps((role, element), (role, [token, {**element, "metadata": {"c": "d"}}]))
    for digits in (*_DIGITS, 12, 17, 18):
        data = {**card_data(1, digits), "expiration_month": 1 + digits % 12}
        yield _steps((role, {"type": "card", "data": data}))
    later = {**card["data"], "expiration_year": 2040, "cvc": TextValue(9, ("cvc 4",))}
    yield _steps((role, [card, {**card, "data": later}, {"type": "card", "data": card_data(5)}]))
    if "containers" in offer.fields:
        tokens, paths = offer.profile.tokens, (*offer.containers, "/general/", "/pci/")[:2]
        is_text = tokens.container_form == "string"
        values: list[Node] = [path if is_text else [path] for path in paths]
        named = [{**card, tokens.container_field: value} for value in values]
        yield _steps((role, [card, *named]))
    printed = {**token, "fingerprint_expression": "{{ data }}"}
    again = {**printed, "metadata": {"a": "b"}}
    yield _steps((role, [printed, again, {**printed, "data": TextValue(2)}]))


def _keys(role: str) -> Iterator[list[SequenceStep]]:
    for start in range(0, len(ODD_KEYS), _BATCH):
        keys = ODD_KEYS[start : start + _BATCH]
        yield _steps((role, {key: TextValue(place + 1) for place, key in enumerate(keys)}))
    yield _steps((role, {str(place): TextValue(place + 1) for place in range(3)}))
    for name in ("data", "encrypted", "token_intent_id"):  # without `type` it is a plain object
        yield _steps((role, {name: TextValue(1)}), (role, {name: TextValue(2), "metadata": _TEXT}))


def _identifiers(role: str) -> list[SequenceStep]:
    """Identifiers of known tokens are strings like any other."""
    known, object_of = (Ref(0, 0), Ref(0, 1)), {"type": "token", "data": Ref(0, 0)}
    body: Node = [known[0], Join(("id ", known[1])), object_of, Join(("{{ ", known[1], " }}"))]
    return _steps((role, [TextValue(1), TextValue(2)]), (role, body))


def _elements(offer: Offer) -> Iterator[dict[str, Node]]:
    """Yield an element of each kind; the plain ones come first."""
    yield {"type": "token", "data": TextValue(1)}
    yield {"type": "card", "data": card_data(1)}
    for more in _fields_of(offer):
        yield {"type": "token", "data": TextValue(1), **more}
    for digits in _DIGITS:
        yield {"type": "card", "data": card_data(1, digits)}


def _fields_of(offer: Offer) -> Iterator[dict[str, Node]]:
    """Yield each field that an element may have besides its data, metadata excepted."""
    yield {"search_indexes": ["{{ data }}"]}
    yield {"fingerprint_expression": "{{ data }}"}
    if "containers" in offer.fields:
        tokens = offer.profile.tokens
        path = (offer.containers or ("/pci/",))[0]
        yield {tokens.container_field: path if tokens.container_form == "string" else [path]}


def _duplicates(element: dict[str, Node], wait_ns: int) -> Iterator[list[SequenceStep]]:
    """Send an element by each key of a tenant, alone and inside an array, and by another tenant.

    wait_ns: how long to wait before one duplicate, so that a time of its own would differ.
    """
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
    steps[3].wait_ns = wait_ns
    yield _steps(("dedup_reader", first), ("dedup_reader", later))
    yield _steps(("private_prod", first), ("dedup_reader", later))
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
    long = ("4096 characters",)
    yield _steps(("dedup", [TextValue(1, long), TextValue(1, (*long, "letter more"))]))
    expression: dict[str, Node] = {"type": "token", "fingerprint_expression": "{{ data }}"}
    for group in (((), ("upper case",), ()), (long, (*long, "letter more"), long)):
        bodies = [{**expression, "data": TextValue(1, wraps)} for wraps in group]
        yield _steps(("dedup_reader", bodies))
    card: dict[str, Node] = {"type": "card", "data": card_data()}  # equal by its number alone
    later = {**card, "data": {**card_data(), "expiration_year": 2034, "expiration_month": 7}}
    yield _steps(("dedup_reader", card), ("dedup", later), ("dedup_reader", [later]))


def _refusals(role: str, offer: Offer) -> Iterator[list[SequenceStep]]:
    """An invalid element fails its request, and what stands beside it is not created."""
    flag: dict[str, Node] = {}
    if "flag" in offer.fields:
        flag = {offer.profile.dedup.flag_name: True}
    elif sees_creation(offer):
        role = "dedup"
    wrong = list(_WRONG)
    if offer.can_encrypt:
        wrong.append({"type": "token", "encrypted": Sealed(7, _TEXT, is_broken=True)})
    again: list[Node] = [{"type": "token", "data": TextValue(n), **flag} for n in (1, 2)]
    for place, element in enumerate(wrong):
        shapes: tuple[Node, ...] = (
            [TextValue(1), element, TextValue(2)],
            {"a": [{"b": TextValue(1)}], "c": [element], "d": TextValue(2)},
            [{"type": "token", "data": TextValue(1)}, TextValue(2), element],
        )
        bodies = [shapes[place % len(shapes)], *([again] if sees_creation(offer) else [])]
        yield _steps(*((role, body) for body in bodies))
    if sees_creation(offer):  # cards beside a wrong one are not created either
        card: dict[str, Node] = {"type": "card", "data": card_data(3)}
        wrong_card = {**card, "data": {**card_data(5), "expiration_month": "12"}}
        for pair in ([card, wrong_card], [wrong_card, card]):
            yield _steps((role, pair), (role, {**card, **flag}))
    if "private_no_permission" in offer.roles and "flag" in offer.fields:
        body: Node = {"type": "token", "data": TextValue(1)}
        yield _steps(("private_no_permission", body), (role, {**body, **flag}))


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
    if "flag" in offer.fields:  # what may be created is not, beside what may not
        again = {**good, offer.profile.dedup.flag_name: True}
        yield _steps(("private_one_container", [good, wrong]), ("private_one_container", again))


def _makes_keys(offer: Offer) -> bool:
    """Whether a management key can make an application with grants of one's own."""
    made = {"create_application", "create_application_key"}
    return "management" in offer.roles and made <= offer.operations - offer.mapped


def _reader_elsewhere(reader: str, offer: Offer) -> list[SequenceStep]:
    """A key that may read in another container is shown no metadata of this one."""
    tokens = offer.profile.tokens
    here, there = (*offer.containers, "/general/", "/pci/")[:2]
    path: Node = here if tokens.container_form == "string" else [here]
    element = {**_numbered(1), tokens.container_field: path, "metadata": {"a": "b"}}
    grants = [
        {"container": here, "permissions": ["token:create"]},
        {"container": there, "permissions": ["token:create", "token:read"]},
    ]
    application = {"name": "model", "kind": "private", "grants": grants}
    again = {**element, offer.profile.dedup.flag_name: True}
    return [
        SequenceStep(0, "create_application", "management", body=application),
        SequenceStep(1, "create_application_key", "management", {"id": Ref(0, 0)}, body={}),
        SequenceStep(2, "tokenize", reader, {"value": element}),
        SequenceStep(3, "tokenize", Ref(1, 0), {"value": again}),
    ]


def _numbered(number: int) -> dict[str, Node]:
    return {"type": "token", "data": TextValue(number)}


def _counts(reader: str, offer: Offer) -> Iterator[list[SequenceStep]]:
    """As many elements of a kind as the quota allows are accepted, more are refused."""
    for count in (_BATCH, _BATCH + 1):
        kinds: list[list[Node]] = [
            [TextValue(number) for number in range(1, count + 1)],
            [_numbered(number) for number in range(1, count + 1)],
            [{"type": "card", "data": card_data(2 * number)} for number in range(1, count + 1)],
            [{"type": "card", "data": card_data()}] * count,
            [{"type": "token", "data": TextValue(1)}] * count,
            [TextValue(1)] * count,
        ]
        kinds += [
            [{**_numbered(number), **more} for number in range(1, count + 1)]
            for more in ({"metadata": {"a": "b"}}, *_fields_of(offer))
        ]
        if "flag" in offer.fields:  # else an earlier run's may be found again
            kinds.append(list(_LOOKALIKES[:count]))
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
            body = holes(used, before, after)
            yield [*made, SequenceStep(2, "detokenize", reader, body=body)]
    for count in (_BATCH, _BATCH + 1):
        parts = [part for ref in refs[:count] for part in ("{{ ", ref, " }} ")]
        body = {"all": Join(tuple(parts)), "none": "text"}
        yield [*made, SequenceStep(2, "detokenize", reader, body=body)]


def _shown_elsewhere(reader: str, offer: Offer) -> Iterator[list[SequenceStep]]:
    """Other operations show the records that tokenize has returned, and no secret of theirs."""
    number: Node = TextValue(2, ("card 16",))
    mine: Node = {"of": TextValue(7)}  # a list begins with the tokens of earlier plays
    token = {
        **_numbered(1),
        "metadata": mine,
        "search_indexes": ["{{ data }}"],
        "fingerprint_expression": "{{ data }}",
    }
    card = {
        "type": "card",
        "data": {**card_data(2), "number": number},
        "metadata": mine,
        "search_indexes": ["{{ data.number }}"],
    }
    made = _steps((reader, [token, card]))
    steps = [SequenceStep(1, "list", reader, query={"size": 100, "metadata.of": TextValue(7)})]
    for place, term in enumerate((Join(("data:", TextValue(1))), Join(("data.number:", number)))):
        named: dict[str, Node] = {"id": Ref(0, place)}
        steps += [
            SequenceStep(1, "get", reader, named),
            SequenceStep(1, "patch", reader, named, body={"metadata": {"c": "d"}}),
            SequenceStep(1, "search", reader, body={"query": term, "size": 100}, is_filtered=True),
        ]
    for place, data in enumerate((TextValue(8), {"cvc": TextValue(9, ("cvc 3",))})):
        named = {"id": Ref(0, place)}
        steps.append(SequenceStep(1, "patch", reader, named, body={"data": data}))
    offered = offer.operations - offer.mapped
    read = SequenceStep(2, "detokenize", reader, body=holes((Ref(0, 0), Ref(0, 1))))
    for step in steps:
        if step.operation in offered:
            yield [*made, step, *([read] if "detokenize" in offered else [])]
