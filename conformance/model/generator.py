"""The generator: draws a sequence of steps from what the reference has answered so far.

It is swarm testing: each sequence uses a random subset of the features, about 16 steps long, so
that rare combinations occur. A third of the sequences keep to one subject, where a fault needs
several steps in a certain order. A seed repeats a sequence; refusals are few, since a refused
request shows little.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from conformance.model.play import SequenceStep, identified
from conformance.model.reference import ReferenceAnswer
from conformance.model.values import FORMS, VARIANTS, Join, Node, Ref, Sealed, TextValue
from engine import Profile

LENGTH: Final = 16
_SECOND_NS: Final = 1_000_000_000
ODD_KEYS: Final = (
    *("name", "email", "toString", "__proto__", "constructor", "length", "Type", "TYPE", "data"),
    *("id", "a.b", "a/b", "~0", "", " ", "\u00e9", "e\u0301", "a\0b", "\x07", "t\tab", "l\nf", "0"),
    *("\x7f", "\U0001f600", 'x"y', "k" * 300, "metadata", "encrypted", "_extras", "ID", "$ref"),
    *("\ud7ff", "null", "tokens", "token", "mask", "errors", "created_at", "Name", "NAME"),
    *("types", "a~b", "ключ", " blank ", "e\u0301te\u0301", "\u00e9t\u00e9", "\ufb01n", "\u212b"),
    "zero\u200bwidth",
)
_JSON: Final = {"Content-Type": "application/json"}
_ODD_BODY: Final = b'{"name": "odd"}'
_NOT_JSON: Final = (
    *(b'{"a": ', b'{"a": NaN}', b'["\xff"]', b"", b"hello", b"a=x&b=y"),
    *(b'{"a": "x", "a": "y"}', b'{"a": "x"} {"b": "y"}'),
)
ODD_REQUESTS: Final[tuple[dict[str, Any], ...]] = (
    *({"raw": raw, "headers": _JSON} for raw in _NOT_JSON),
    {"raw": b"a=b", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
    {"raw": _ODD_BODY, "headers": {"Content-Type": "application/json; charset=utf-8"}},
    {"raw": b'\n\t {"name"\n:\t"odd" } \n', "headers": _JSON},
    {"raw": b'{"n\\u0061me": "\\ud83d\\ude00 \\/ odd"}', "headers": _JSON},
    *(
        {"raw": _ODD_BODY, "headers": _JSON, "key_header": text}
        for text in ("", "unknown", "KEYx", "xKEY")
    ),
)
"""Bodies that are not JSON, other media types, and headers that hold no known key."""
_CARD_EXPRESSIONS: Final = (
    *("{{ data }}", "{{ data.number }}", "{{ data.expiration_month }}"),
    "{{ data.expiration_year }}",
)
_CONTAINERS: Final = (
    "/pci/",
    "/pci/high/",
    "/general/",
    "/general/high/",
    "/a/b/",
    "/A/b/",
    "/pci2/",
)
_RIGHTS: Final = (
    *("token:create", "token:create", "token:read", "token:update", "token:delete", "token:search"),
)
READERS: Final[Mapping[str, str]] = {
    "private_test": "private_test",
    "dedup": "dedup_reader",
    "dedup_reader": "dedup_reader",
    "short": "short",
}
"""The role that may read what a role has created; private_reader for all others."""
_GROUPS: Final = (
    ("private_reader", "private_prod"),
    ("private_reader", "legacy", "public"),
    ("dedup", "dedup_reader"),
    ("dedup", "dedup_reader", "private_reader"),
    ("short",),
    ("private_reader", "short", "dedup_reader"),
    ("private_reader", "private_one_container", "private_no_permission"),
    ("private_test", "private_reader"),
    ("private_reader", "private_prod", "dedup", "short", "public", "private_no_permission"),
    ("private_reader", "management", "private_one_container"),
)
_WEIGHTS: Final[Mapping[str, int]] = {
    "tokenize": 30,
    "again": 8,
    "create": 8,
    "detokenize": 14,
    "get": 5,
    "list": 3,
    "search": 7,
    "patch": 7,
    "delete": 5,
    "create_token_intent": 4,
    "list_logs": 2,
    "odd": 3,
    "create_application": 3,
}
_SUBJECTS: Final = ("deletion", "grants", "authority", "refusals", "intents")
_FEATURES: Final = (
    *("encrypted", "card", "metadata", "indexes", "expression", "container", "flag", "variant"),
    *("deep", "intent", "odd_key", "shuffle"),
)


@dataclass(slots=True)
class ReferenceToken:
    """A token that the reference holds. owner: the role that created it."""

    ref: Ref
    owner: str
    value: Node
    element: Node
    is_live: bool = True


OPEN_FIELDS: Final = frozenset({"flag", "containers", "depth", "metadata", "card_parts"})
"""What a deployment may name or bound otherwise: tried before it is used."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a sequence may use: roles with a key, operations, containers, fields, and waits.

    fields: those of `OPEN_FIELDS` that the deployment takes as assumed.

    mapped: operations with a shape of their own, whose body cannot be chosen. untold: roles whose
    keys may or may not create tokens. is_virtual: whether waiting costs no real time. can_encrypt:
    whether the target tells an encryption key. narrow: the container of role private_one_container.
    year: in which the run began.
    """

    roles: frozenset[str]
    operations: frozenset[str]
    mapped: frozenset[str] = frozenset()
    containers: tuple[str, ...] = ()
    profile: Profile = field(default_factory=Profile)
    fields: frozenset[str] = OPEN_FIELDS
    can_encrypt: bool = False
    is_virtual: bool = False
    untold: frozenset[str] = frozenset()
    narrow: str = "/pci/"
    year: int = 2031


class Generator:
    """Draws steps; `learn` tells it what the reference answered."""

    def __init__(self, chance: random.Random, offer: Offer, length: int = LENGTH) -> None:
        self._chance = chance
        self._offer = offer
        self._length = length
        self._number = 0
        self._tokens: list[ReferenceToken] = []
        self._intents: list[ReferenceToken] = []
        self._texts: list[TextValue] = []
        self._cards: list[dict[str, Node]] = []
        self._sent: list[SequenceStep] = []
        self._refused: list[Node] = []
        self._made: list[SequenceStep] = []
        self._keys: list[Ref] = []
        self._focus: ReferenceToken | None = None
        self._narrow: tuple[str, ...] = ()
        self._cores = 0
        choose = chance.choice
        self._shares = {name: choose((0, 0.1, 0.3, 0.7)) for name in _FEATURES}
        self._shares["bad"] = choose((0, 0, 0.05, 0.2))
        self._shares["repeat"] = choose((0.1, 0.3, 0.7))
        self._roles = self._choose_roles()
        # The target's encryption key is of one tenant; others may have none.
        if (
            not offer.can_encrypt
            or self._roles[0] != "private_reader"
            or READERS.keys() & self._roles
        ):
            self._shares["encrypted"] = 0
        self._waits_ns: tuple[int, ...] = (0,)
        if offer.is_virtual:
            seconds = choose(((2,), (2,), (2, 2, 4), (2, 1_800, 3_700), (2, 5)))
            self._waits_ns = tuple(wait * _SECOND_NS for wait in seconds)
        self._operations = {
            name: weight * (1 if name in {"tokenize", "detokenize"} else choose((0, 1, 1, 3)))
            for name, weight in _WEIGHTS.items()
            if name in offer.operations or name in {"tokenize", "again", "odd"}
        }
        self._keep_to_a_subject()
        for name, shares in (
            ("flag", "flag"),
            ("containers", "container"),
            ("metadata", "metadata"),
        ):
            if name not in offer.fields:
                self._shares[shares] = 0
        self._deepest = 12 if "depth" in offer.fields else 6

    def _choose_roles(self) -> list[str]:
        groups: list[list[str]] = [
            [role for role in group if role in self._offer.roles]
            for group in _GROUPS
            if group[0] in self._offer.roles
        ]
        return self._chance.choice(groups) if groups else ["private_prod"]

    def _keep_to_a_subject(self) -> None:
        subject = self._chance.choice((None,) * 7 + _SUBJECTS)
        shares, names = self._shares, tuple[str, ...]()
        if subject == "deletion":
            names = ("tokenize", "tokenize", "create", "delete", "search", "get", "detokenize")
            shares.update(indexes=0.8, metadata=0.5, card=0.2, flag=0.6, repeat=0.7)
        elif subject == "grants" and "private_no_permission" in self._offer.roles:
            names = ("create_application", "tokenize", "again", "again", "get", "detokenize")
            shares.update(flag=0.7, metadata=0.7, container=0.7, repeat=0.5)
            self._roles = ["private_reader", "private_no_permission"]
        elif subject == "authority" and "private_one_container" in self._offer.roles:
            names = ("tokenize", "tokenize", "again", "detokenize")
            shares.update(container=0.8, flag=0.5, repeat=0.5)
            self._roles = ["private_one_container", "private_reader", "private_no_permission"]
            self._roles = [role for role in self._roles if role in self._offer.roles]
            self._narrow = 4 * (self._offer.narrow,)
            if self._offer.can_encrypt:
                shares["encrypted"] = self._chance.choice((0, 0.4))
        elif subject == "refusals":
            names = ("tokenize", "tokenize", "again")
            shares.update(bad=0.35, flag=0.5, repeat=0.3)
        elif subject == "intents":
            names = ("create_token_intent", "tokenize", "detokenize")
            shares.update(intent=0.7, bad=0)
        allowed = self._offer.operations | {"tokenize", "again"}
        weights = {name: 5 * names.count(name) for name in names if name in allowed}
        if weights:
            self._operations = weights
            if subject != "refusals":
                shares["bad"] = 0

    # --- steps ----------------------------------------------------------------------------------

    def steps(self) -> Iterator[SequenceStep]:
        """Yield the steps of the sequence."""
        while self._number < self._length:
            yield self._next()

    def _next(self) -> SequenceStep:
        names, weights = list(self._operations), list(self._operations.values())
        for _ in range(20):
            if not any(weights):
                break
            name = self._chance.choices(names, weights)[0]
            step: SequenceStep | None = getattr(self, f"_{name}")()
            if step is not None:
                return step
        return self._tokenize()

    def _step(self, operation: str, role: str | Ref, **fields: Any) -> SequenceStep:  # noqa: ANN401 # reason: fields of Step
        wait_ns = self._chance.choice(self._waits_ns)
        step = SequenceStep(self._number, operation, role, wait_ns=wait_ns, **fields)
        self._number += 1
        return step

    def _has(self, feature: str) -> bool:
        return self._chance.random() < self._shares[feature]

    def _caller(self) -> str | Ref:
        if self._keys and self._chance.random() < 0.4:
            return self._chance.choice(self._keys)
        stated = [role for role in self._roles if role not in self._offer.untold]
        return self._chance.choice(stated or self._roles)

    def _tokenize(self) -> SequenceStep:
        again = self._chance.random() < 0.6 and self._refused
        if again:
            return self._retry_refused()
        body = self._body()
        step = self._step("tokenize", self._caller(), values={"value": body})
        self._sent.append(step)
        return step

    def _retry_refused(self) -> SequenceStep:
        """Tokenize an element of a refused request alone: it must be new."""
        element = self._refused.pop(self._chance.randrange(len(self._refused)))
        if isinstance(element, TextValue):
            element = {"type": "token", "data": element}
        flag = self._offer.profile.dedup.flag_name
        fields = {flag: True} if "flag" in self._offer.fields else {}
        owner = self._chance.choice(
            [role for role in self._roles if role in READERS] or self._roles
        )
        if owner in {"private_no_permission", "private_one_container", "management"}:
            owner = "private_reader" if "private_reader" in self._offer.roles else "private_prod"
        return self._step("tokenize", owner, values={"value": {**element, **fields}})

    def _again(self) -> SequenceStep | None:
        """Send an earlier request with another key: who may, whose token, what is shown."""
        if not self._sent:
            return None
        earlier = self._chance.choice(self._sent)
        reader = READERS.get(str(earlier.role), "private_reader")
        others = [
            role
            for role in (*self._roles, reader, "private_no_permission")
            if role in self._offer.roles - self._offer.untold
        ]
        callers: list[str | Ref] = [*others, *self._keys]
        role = self._chance.choice(callers or [earlier.role])
        return self._step("tokenize", role, values=copy.deepcopy(earlier.values))

    def _create(self) -> SequenceStep:
        element = self._element()
        if isinstance(element, TextValue):
            element = {"type": "token", "data": element}
        if "create" in self._offer.mapped:
            return self._step("create", self._caller(), values={"value": self._text()})
        return self._step("create", self._caller(), body=element)

    def _detokenize(self) -> SequenceStep | None:
        chance = self._chance
        picked = [self._pick(0.9) for _ in range(chance.choice((1, 1, 2, 3, 5, 6)))]
        tokens = [token for token in picked if token is not None]
        if not tokens:
            return None
        role = self._reader_of(tokens[0])
        if role is None:
            return None
        tokens = [token for token in tokens if self._reader_of(token) == role]
        if "detokenize" in self._offer.mapped:
            token = tokens[0]
            values = {"id": token.ref}
            return self._step("detokenize", role, values=values)
        if chance.random() < 0.25:
            tokens = tokens[:1] * len(tokens)
        forms = (("{{ ", " }}"), ("{{", "}}"), ("{{ token: ", " }}"), ("a {{ ", " }} b"))
        holes: list[Node] = []
        for token in tokens:
            before, after = chance.choice(forms)
            holes.append(Join((before, token.ref, after)))
        body: Node = {f"v{place}": hole for place, hole in enumerate(holes)}
        if chance.random() < 0.4:
            body = [holes, {"n": 1.5, "x": None}]
        return self._step("detokenize", role, body=body)

    def _get(self) -> SequenceStep | None:
        token = self._pick(0.7)
        if token is None:
            return None
        role: str | Ref | None = self._reader_of(token)
        if self._chance.random() < 0.25:
            role = self._caller()
        return None if role is None else self._step("get", role, values={"id": token.ref})

    def _list(self) -> SequenceStep | None:
        token = self._pick(0.8)
        role = None if token is None else self._reader_of(token)
        return self._step("list", role, query={"size": 100}) if role else None

    def _list_logs(self) -> SequenceStep | None:
        role = self._reader_of_role(self._roles[0])
        return None if role is None else self._step("list_logs", role, query={"size": 100})

    def _search(self) -> SequenceStep | None:
        indexed = [
            token
            for token in self._tokens
            if isinstance(token.element, dict) and token.element.get("search_indexes")
        ]
        if self._focus in indexed and self._chance.random() < 0.6:
            indexed = [self._focus]
        if not indexed:
            return None
        token = self._chance.choice(indexed)
        role = self._reader_of(token)
        if role is None:
            return None
        value = token.value
        if "search" in self._offer.mapped:
            if not isinstance(value, TextValue) or value.wraps:
                return None
            return self._step("search", role, values={"value": value}, is_filtered=True)
        if isinstance(value, TextValue):
            wraps = () if self._chance.random() < 0.7 else (self._chance.choice(VARIANTS),)
            term = Join(("data:", replace(value, wraps=(*value.wraps, *wraps))))
        elif isinstance(value, dict):
            name = self._chance.choice([key for key in value if key != "cvc"])
            part = value[name]
            term = Join((f"data.{name}:", part if isinstance(part, TextValue) else str(part)))
        else:
            return None
        return self._step("search", role, body={"query": term, "size": 100}, is_filtered=True)

    def _patch(self) -> SequenceStep | None:
        token = self._pick(0.8)
        role = None if token is None else self._reader_of(token)
        if token is None or role is None or "patch" in self._offer.mapped:
            return None
        chance = self._chance
        changes: dict[str, Node] = {}
        if chance.random() < 0.4:
            changes["metadata"] = chance.choice((self._metadata(), None, {"tier": "silver"}))
        if chance.random() < 0.5:
            is_card = isinstance(token.value, dict)
            new: Node = self._text()
            if is_card:
                new = chance.choice(
                    ({"cvc": self._fresh("cvc 3")}, self._card(), {"expiration_year": 2040})
                )
            changes["data"] = new
        return self._step(
            "patch",
            role,
            values={"id": token.ref},
            body=changes or {"metadata": {"tier": "gold"}},
        )

    def _delete(self) -> SequenceStep | None:
        token = self._pick(0.9)
        role = None if token is None else self._reader_of(token)
        if token is None or role is None:
            return None
        return self._step("delete", role, values={"id": token.ref})

    def _create_token_intent(self) -> SequenceStep | None:
        role = self._reader_of_role(self._roles[0])
        if role is None or "create_token_intent" in self._offer.mapped:
            return None
        body: dict[str, Node] = {"type": "token", "data": self._text()}
        if self._has("card"):
            body = {"type": "card", "data": self._card()}
        self._shares["intent"] = max(self._shares["intent"], 0.3)
        return self._step("create_token_intent", role, body=body)

    def _odd(self) -> SequenceStep:
        """A body that is not JSON, another media type, or a header that holds no known key."""
        role = "private_reader" if "private_reader" in self._offer.roles else "private_prod"
        return self._step("tokenize", role, **self._chance.choice(ODD_REQUESTS))

    def _create_application(self) -> SequenceStep | None:
        """An application with drawn grants, then its key."""
        needed = {"create_application", "create_application_key"}
        if "management" not in self._offer.roles or needed & self._offer.mapped:
            return None
        if self._made:
            made = self._made.pop()
            return self._step(
                "create_application_key", "management", values={"id": Ref(made.number, 0)}, body={}
            )
        chance = self._chance
        paths = chance.sample(self._containers(), min(2, len(self._containers())))
        grants = [
            {
                "container": path,
                "permissions": sorted(set(chance.sample(_RIGHTS, chance.randint(1, 4)))),
            }
            for path in paths
        ]
        body = {"name": "model", "kind": "private", "grants": grants}
        return self._step("create_application", "management", body=body)

    # --- bodies ---------------------------------------------------------------------------------

    def _body(self) -> Node:
        """Return a body of any shape; at times it holds as many elements as the quota, or more."""
        chance = self._chance
        if chance.random() < 0.15:
            return {f"k{chance.randrange(99)}": self._text() for _ in range(chance.randint(1, 4))}
        count = chance.choice((1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 5, 6, 7))
        elements = [self._element() for _ in range(count)]
        if count > 1 and chance.random() < 0.3:
            elements[-1] = copy.deepcopy(elements[0])
        if count > 2 and chance.random() < 0.1:
            elements = [elements[0]] * count
        if self._chance.random() < self._shares["bad"] / 2:
            elements.append(chance.choice((5, None, True, 1.5)))
        if len(elements) == 1 and isinstance(elements[0], dict) and chance.random() < 0.6:
            return elements[0]
        return self._shape(elements, 0)

    def _shape(self, elements: list[Node], depth: int) -> Node:
        chance = self._chance
        if len(elements) == 1 and depth and not (depth < self._deepest and self._has("deep")):
            return elements[0]
        groups = [elements[place : place + 1] for place in range(len(elements))]
        if len(elements) > 2 and chance.random() < 0.4:
            half = len(elements) // 2
            groups = [elements[:half], elements[half:]]
        shaped = [self._shape(group, depth + 1) for group in groups]
        if chance.random() < 0.5:
            return [*shaped, *([[]] if chance.random() < 0.05 else [])]
        names: dict[str, None] = {}
        while len(names) < len(shaped):
            odd = chance.choice(ODD_KEYS) if self._has("odd_key") else f"k{chance.randrange(99)}"
            names[odd] = None
        return dict(zip(names, shaped, strict=True))

    def _element(self) -> Node:
        chance = self._chance
        if chance.random() < 0.45:
            return self._text()
        element: dict[str, Node] = {"type": "card" if self._has("card") else "token"}
        live = [intent for intent in self._intents if intent.is_live]
        if live and self._has("intent"):
            intent = chance.choice(live)
            element = {"type": intent.element["type"], "token_intent_id": intent.ref}
        else:
            value = self._card() if element["type"] == "card" else self._text()
            if self._has("encrypted"):
                element["encrypted"] = Sealed(self._count(), value)
            else:
                element["data"] = value
        self._decorate(element)
        if self._has("bad"):
            self._spoil(element)
        if self._has("shuffle"):
            items = list(element.items())
            chance.shuffle(items)
            element = dict(items)
        return element

    def _decorate(self, element: dict[str, Node]) -> None:
        chance, profile = self._chance, self._offer.profile
        expressions = _CARD_EXPRESSIONS if element["type"] == "card" else ("{{ data }}", "{{data}}")
        if self._has("metadata"):
            element["metadata"] = self._metadata()
        if self._has("indexes"):
            usable = expressions[:2] if element["type"] == "card" else expressions[:1]
            element["search_indexes"] = [chance.choice(usable)]
        if self._has("expression"):
            usable = expressions[:2] if element["type"] == "card" else expressions[:1]
            element["fingerprint_expression"] = chance.choice(usable)
        if self._has("container"):
            path = chance.choice(self._containers())
            is_text = profile.tokens.container_form == "string"
            element[profile.tokens.container_field] = path if is_text else [path]
        if self._has("flag"):
            element[profile.dedup.flag_name] = chance.random() < 0.85

    def _metadata(self) -> dict[str, str]:
        chance = self._chance
        names = chance.sample(
            ("tier", "ref", "seq", "Tier", "toString", "a.b"), chance.choice((1, 1, 2, 3))
        )
        values = ("gold", "Gold", " x ", "", "\u00e9", "e\u0301", "4111", "{{ data }}", "v" * 256)
        return {name: chance.choice(values) for name in names}

    def _spoil(self, element: dict[str, Node]) -> None:
        """Make an element invalid, by a rule that the specification states."""
        chance = self._chance
        is_card = element["type"] == "card"
        if is_card and "data" in element and chance.random() < 0.5:
            faults: tuple[dict[str, Node], ...] = (
                *(
                    {"number": number}
                    for number in ("42 42", "", 4242424242424242, "4242x24242424242")
                ),
                *({"expiration_month": month} for month in ("12", 12.5)),
                {"expiration_year": "2031"},
                {"cvc": 731},
            )
            element["data"] = {**element["data"], **chance.choice(faults)}
            return
        changes: tuple[dict[str, Node], ...] = (
            {"type": chance.choice(("no-such-type", "ReferenceToken", "", "TOKEN", "card "))},
            {"metadata": chance.choice(({"a": 5}, {"a": {"b": "c"}}, "x", ["a"]))},
            {"search_indexes": chance.choice(("x", [5]))},
            {"fingerprint_expression": chance.choice((5, ["{{ data }}"]))},
            {"encrypted": chance.choice(("a.b.c.d.e", "hello", 5))},
            {},
        )
        change = chance.choice(changes)
        if "encrypted" in change or not change:
            for name in ("data", "encrypted", "token_intent_id"):
                element.pop(name, None)
        if change.get("encrypted") == "hello" and self._offer.can_encrypt:
            change = {"encrypted": Sealed(self._count(), "x", is_broken=True)}
        element.update(change)

    # --- values ---------------------------------------------------------------------------------

    def _count(self) -> int:
        self._cores += 1
        return self._cores

    def _fresh(self, *wraps: str) -> TextValue:
        return TextValue(self._count(), wraps)

    def _text(self) -> TextValue:
        chance = self._chance
        if self._texts and self._has("repeat"):
            text = chance.choice(self._texts)
        elif self._texts and self._has("variant"):
            earlier = chance.choice(self._texts)
            text = replace(earlier, wraps=(*earlier.wraps, chance.choice(VARIANTS)))
        else:
            text = self._fresh() if chance.random() < 0.35 else self._fresh(chance.choice(FORMS))
        self._texts.append(text)
        return text

    def _card(self) -> dict[str, Node]:
        chance = self._chance
        if self._cards and self._has("repeat"):
            card = dict(chance.choice(self._cards))
            if chance.random() < 0.4:
                card["cvc"] = self._fresh("cvc 3")
            elif chance.random() < 0.3:
                card["expiration_year"] = 2030 + chance.randrange(9)
            return card
        digits = chance.choice((16, 16, 16, 15, 13, 14, 19))
        card = {"number": self._fresh(f"card {digits}")}
        is_whole = self._offer.profile.tokens.card_all_required
        is_whole |= "card_parts" not in self._offer.fields
        if is_whole or chance.random() < 0.8:
            card["expiration_month"] = chance.randint(1, 12)
            card["expiration_year"] = chance.choice((2031, 2039, self._offer.year))
        if is_whole or chance.random() < 0.7:
            card["cvc"] = self._fresh(chance.choice(("cvc 3", "cvc 3", "cvc 4")))
        self._cards.append(card)
        self._texts.append(card["number"])
        return card

    def _containers(self) -> tuple[str, ...]:
        return (*(self._offer.containers or _CONTAINERS), *self._narrow)

    def _pick(self, live_share: float) -> ReferenceToken | None:
        chance = self._chance
        if self._focus is not None and chance.random() < 0.5:
            return self._focus
        live = [token for token in self._tokens[-12:] if token.is_live]
        pool = live if chance.random() < live_share else self._tokens
        return chance.choice(pool) if pool else None

    def _reader_of(self, token: ReferenceToken) -> str | None:
        return self._reader_of_role(token.owner)

    def _reader_of_role(self, owner: str) -> str | None:
        role = READERS.get(owner, "private_reader")
        return role if role in self._offer.roles else None

    # --- what the reference answered ------------------------------------------------------------

    def learn(self, step: SequenceStep, answer: ReferenceAnswer, refs: Mapping[str, Ref]) -> None:
        """Note what a step has created, changed or deleted."""
        if step.operation in {"tokenize", "create"} and step.raw is None:
            if answer.ok:
                self._note_tokens(step, answer, refs)
            else:
                elements = _elements(step.payload)
                self._refused += [element for element in elements if _is_valid(element)]
        elif not answer.ok:
            return
        elif step.operation == "delete":
            self._change(step.values["id"], lambda token: replace(token, is_live=False))
        elif step.operation == "patch":
            self._change(step.values["id"], lambda token: _patched(token, step.body))
        elif step.operation == "create_token_intent":
            ref = Ref(step.number, 0)
            self._intents.append(ReferenceToken(ref, str(step.role), step.body["data"], step.body))
        elif step.operation == "create_application":
            self._made.append(step)
        elif step.operation == "create_application_key":
            self._keys.append(Ref(step.number, 0))

    def _note_tokens(
        self, step: SequenceStep, answer: ReferenceAnswer, refs: Mapping[str, Ref]
    ) -> None:
        owner = step.role if isinstance(step.role, str) else "private_reader"
        for element, name in identified(step.payload, answer.body):
            value = element.get("data") if isinstance(element, dict) else element
            if isinstance(element, dict) and isinstance(element.get("encrypted"), Sealed):
                value = element["encrypted"].data
            if isinstance(element, dict) and "token_intent_id" in element:
                self._intents = [it for it in self._intents if it.ref != element["token_intent_id"]]
            if name in refs:
                self._tokens.append(ReferenceToken(refs[name], owner, value, element))

    def _change(self, ref: Ref, change: Callable[[ReferenceToken], ReferenceToken]) -> None:
        for place, token in enumerate(self._tokens):
            if token.ref == ref:
                self._tokens[place] = self._focus = change(token)


def _patched(token: ReferenceToken, changes: Mapping[str, Node]) -> ReferenceToken:
    if "data" not in changes:
        return token
    value = changes["data"]
    if isinstance(value, dict) and isinstance(token.value, dict):
        value = {**token.value, **value}
    return replace(token, value=value)


def _is_valid(element: Node) -> bool:
    return isinstance(element, TextValue) or (
        isinstance(element, dict)
        and element.get("type") == "token"
        and isinstance(element.get("data"), TextValue)
        and set(element) <= {"type", "data"}
    )


def _elements(body: Node) -> Iterator[Node]:
    if isinstance(body, TextValue) or (isinstance(body, dict) and "type" in body):
        yield body
    elif isinstance(body, dict | list):
        for part in body.values() if isinstance(body, dict) else body:
            yield from _elements(part)
