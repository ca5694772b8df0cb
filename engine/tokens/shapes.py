"""The walk: which parts of a body become tokens, and a template of the answer (section 4.1).

    TOK-OBJECT     an object holding `type` is a token request object → one record
    TOK-PLAIN      an object without `type`: the same keys, each value replaced
    TOK-ARRAY      an array: the same length and order
    TOK-COMPOSITE  objects and arrays nested in one another: the same structure
    TOK-LEAF       a plain string anywhere is a generic `token` → its identifier

Where the specification is silent the profile decides: D-DEPTH, D-EMPTY, D-LEAF, D-SCALAR,
D-TYPE-VALUE, D-CONTAINER. Depth counts the objects and arrays of the body; a token request object
is one level, whatever it holds. Faults of this step come before permissions (D-ORDER): one 400
names them all.

The walk builds the template with a slot for each element's result, so that the answer has the
structure of the body and only the slots must be filled. The loop holds its own stack: no body can
exhaust Python's. `types` validates the content of token request objects.

A `NewToken` is not yet created. It holds sensitive values on their way from the body to the vault;
its repr shows none. `stored` makes a stored token (`engine.model.Token`) of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from engine.identity import container_rule, normal_container
from engine.messages import Json, Problem
from engine.tokens.rules import TOKEN, Rules
from engine.tokens.strict_json import BodyErrors, escaped

PathNode: TypeAlias = tuple[Any, Any] | None
"""The path to an object or array of the body: (path around it, key or index); None = outside."""


def pointer_to(parent: PathNode, key: str | int) -> str:
    """Return the JSON Pointer (RFC 6901) of what stands at `key` of the container at `parent`."""
    parts: list[str] = []
    while parent is not None:
        parts.append(escaped(str(key)))
        parent, key = parent
    return "".join(reversed(parts))


class NewToken(Struct, gc=False, eq=False):
    """A future token: the walk sets its place, the reading of its type the content.

    parent, key: the path to its object or array in the body, and its place there. slot: the list
    or dict of the template where its result belongs. value: what stands there, a leaf or a token
    request object. type, container: known and valid. is_leaf: answered with an identifier instead
    of a record (TOK-LEAF).

    The rest is set by `engine.tokens.types`, once nothing is wrong with it:
    plaintext: JSON of `data` without the cvc, to be sealed.
    selected: canonical JSON of the value that fingerprint and deduplication compare.
    cvc: to be sealed apart (D-CVC), None without one. mask: of a card. metadata,
    search_indexes, fingerprint_expression: as the record shows them, None for absent.
    index_messages: what the index key hashes, one per index. deduplicate: the flag, or the tenant's
    setting (D-DEDUP). intent_id: the token intent that is consumed (D-INTENT).

    It refers to the body and its template, which never refer back, so it cannot be part of a cycle
    and needs no tracking by the garbage collector.
    """

    parent: PathNode
    key: str | int
    slot: Any
    value: Any
    type: str
    container: str
    is_leaf: bool = False
    plaintext: bytes = b""
    selected: bytes = b""
    cvc: str | None = None
    mask: Mapping[str, Any] | None = None
    metadata: Mapping[str, str] | None = None
    search_indexes: tuple[str, ...] | None = None
    index_messages: tuple[bytes, ...] = ()
    fingerprint_expression: str | None = None
    deduplicate: bool = False
    intent_id: str | None = None

    def __repr__(self) -> str:
        return f"<NewToken of a {self.type} in {self.container}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        return [("type", self.type), ("container", self.container)]

    @property
    def pointer(self) -> str:
        """The JSON Pointer of this part of the body."""
        return pointer_to(self.parent, self.key)


def detached_token(type_: str, container: str) -> NewToken:
    """Return one of a stored token, or of one that a patch makes: its place is the body."""
    return NewToken(None, 0, None, None, type_, container)


_LEAF_FAULT: Final = "must be a string, a token request object, an object or an array"


class TokenizeBody:
    """What a body asks for: its elements in document order, depth first, and the template.

    root: its first item is the template: the answer, once the result of each element stands in its
    slot. containers: the destinations, distinct, in the same order (AUTH-CREATE).
    deduplicates: whether deduplication is on for any element; `validate` says so.
    """

    __slots__ = ("containers", "deduplicates", "elements", "root")

    def __init__(self, root: list[Any], elements: list[NewToken]) -> None:
        self.root = root
        self.elements = elements
        containers: dict[str, None] = {}
        for element in elements:
            containers[element.container] = None
        self.containers = tuple(containers)
        self.deduplicates = False


def walk(body: Json, rules: Rules, limit: int = 0) -> TokenizeBody:
    """Return the elements of a tokenize body, and the template of its answer.

    limit: the tenant's Tokenize Limit, below which no bound of D-BODY-COST lies.
    Raises `Problem` 400 naming every fault of this step by its JSON Pointer: nesting, `type`, the
    container field, leaves that are no strings, a bare scalar, an empty body where that is refused.
    A body with more elements or encrypted payloads than D-BODY-COST allows gets only that fault.
    """
    if not isinstance(body, (dict, list)):
        return _walk_scalar(body, rules)
    faults = BodyErrors()
    root: list[Any] = [None]
    if "type" in body and type(body) is dict:
        element = NewToken(None, 0, root, body, TOKEN, rules.leaf_container)
        _request_object(element, rules, faults)
        elements: list[NewToken] = [element]
    else:
        if len(body) > rules.tokens.elements_limit:
            _check_elements(len(body), rules, limit)
        elements = _elements(body, root, rules, faults, limit)
        if len(elements) > rules.tokens.encrypted_limit:
            _check_payloads(elements, max(rules.tokens.encrypted_limit, limit))
    if faults:
        raise faults.problem()
    if not elements and rules.tokens.empty_body == "reject":
        raise Problem(400, "The body must hold something to tokenize.", clause="D-EMPTY")
    return TokenizeBody(root, elements)


def walk_one(body: Json, rules: Rules) -> TokenizeBody:
    """Return the same of a body that must be one token request object (D-CREATE, D-INTENT).

    Raises `Problem` 400 as `walk` does.
    """
    if not isinstance(body, dict):
        raise Problem(400, "The body must be a token request object.", clause="TOK-OBJECT")
    if "type" not in body:
        raise Problem(
            400,
            "The body must be a token request object.",
            errors={"/type": ["is required"]},
            clause="TOK-OBJECT",
        )
    return walk(body, rules)


def _walk_scalar(body: Json, rules: Rules) -> TokenizeBody:
    """D-SCALAR: a body that is a bare scalar is none of the four shapes."""
    choice = rules.tokens.non_string_leaf
    if rules.tokens.scalar_body == "reject" or (not isinstance(body, str) and choice == "reject"):
        raise Problem(400, "The body must be an object or an array.", clause="D-SCALAR")
    if not isinstance(body, str) and choice == "pass":
        return TokenizeBody([body], [])
    root: list[Any] = [None]
    return TokenizeBody(root, [NewToken(None, 0, root, body, TOKEN, rules.leaf_container, True)])


def _elements(
    body: dict[str, Any] | list[Any], root: list[Any], rules: Rules, faults: BodyErrors, limit: int
) -> list[NewToken]:
    """Walk a body that is no request object, build its template as `root[0]`, return its elements.

    D-BODY-COST: elements are leaves, token request objects, and empty objects and arrays. They are
    counted as each object and array is opened, before a step into it is made.
    """
    elements: list[NewToken] = []
    count, few = len(body), rules.tokens.elements_limit
    add = elements.append
    container, defaults = rules.leaf_container, rules.containers
    container_field = rules.tokens.container_field
    deepest = rules.tokens.depth_limit - 1  # one level is the body itself
    # The way back: what is left of each container around, its template, and the way to it.
    stack: list[tuple[Iterator[tuple[Any, Any]], Any, PathNode]] = []
    items, slot = _opened(body)
    root[0] = slot
    parent: PathNode = (None, 0)
    while True:
        for key, value in items:
            kind = type(value)
            if kind is str:
                add(NewToken(parent, key, slot, value, TOKEN, container, True))
            elif kind is not dict and kind is not list:
                leaf = NewToken(parent, key, slot, value, TOKEN, container, True)
                _other_leaf(leaf, rules, elements, faults)
            elif len(stack) >= deepest:
                faults.add(
                    "" if faults.is_full else pointer_to(parent, key),
                    f"must not be nested deeper than {rules.tokens.depth_limit} levels",
                    "D-DEPTH",
                )
            elif kind is dict and "type" in value:  # obeys TOK-OBJECT
                named = value["type"]
                if type(named) is str and named in defaults and container_field not in value:
                    add(NewToken(parent, key, slot, value, named, defaults[named]))
                    continue
                element = NewToken(parent, key, slot, value, TOKEN, container)
                _request_object(element, rules, faults)
                add(element)
            else:
                count += len(value) - 1 if value else 0
                if count > few:
                    _check_elements(count, rules, limit)
                stack.append((items, slot, parent))
                items, inner = _opened(value)
                slot[key] = inner  # obeys TOK-COMPOSITE
                slot, parent = inner, (parent, key)
                break
        else:
            if not stack:
                return elements
            items, slot, parent = stack.pop()


def _check_elements(count: int, rules: Rules, limit: int) -> None:
    """D-BODY-COST: raise `Problem` 400 for more elements than the limit."""
    most = max(rules.tokens.elements_limit, limit)
    if count > most:
        raise _too_many("elements", most)


def _check_payloads(elements: list[NewToken], limit: int) -> None:
    """D-BODY-COST: raise `Problem` 400 where more has to be decrypted than the limit."""
    sealed = sum(1 for element in elements if not element.is_leaf and "encrypted" in element.value)
    if sealed > limit:
        raise _too_many("encrypted payloads", limit)


def _too_many(what: str, limit: int) -> Problem:
    return Problem(400, f"The body must hold at most {limit} {what}.", clause="D-BODY-COST")


def _opened(value: dict[str, Any] | list[Any]) -> tuple[Iterator[tuple[Any, Any]], Any]:
    """Return the members of an object or array, and its template, still to be filled in."""
    if type(value) is dict:
        return iter(value.items()), dict.fromkeys(value)  # obeys TOK-PLAIN
    return iter(enumerate(value)), [None] * len(value)  # obeys TOK-ARRAY


def _other_leaf(leaf: NewToken, rules: Rules, elements: list[NewToken], faults: BodyErrors) -> None:
    """D-LEAF: a number, boolean or null is refused, tokenized, or handed back as it is."""
    choice = rules.tokens.non_string_leaf
    if choice == "reject":
        faults.at(leaf, "", _LEAF_FAULT, "D-LEAF")
    elif choice == "pass":
        leaf.slot[leaf.key] = leaf.value
    else:
        elements.append(leaf)


def _request_object(element: NewToken, rules: Rules, faults: BodyErrors) -> None:
    """Set the type and the container of a token request object, or record a fault."""
    fields = element.value
    named = fields["type"]
    if type(named) is not str:
        fault = "must be a string that names a token type"
        faults.at(element, "/type", fault, "D-TYPE-VALUE")
    elif named not in rules.types:  # obeys TOK-TYPES
        fault = "must be a token type; known: " + ", ".join(sorted(rules.types))
        faults.at(element, "/type", fault, "D-TYPE-VALUE")
    else:
        element.type = named
    field = rules.tokens.container_field
    path = read_container(element, fields[field], rules, faults) if field in fields else None
    # obeys TOK-CONTAINER
    element.container = rules.containers[element.type] if path is None else path


def read_container(
    new_token: NewToken, given: Json, rules: Rules, faults: BodyErrors
) -> str | None:
    """Return the container path that the field holds, None for none or a fault.

    TOK-CONTAINER: the request decides where a token goes, by this field (D-CONTAINER) or by the
    token's type (D-CONTAINER-DEFAULT).
    """
    below = escaped(rules.tokens.container_field)
    if rules.tokens.container_form == "array":
        if type(given) is not list or len(given) > 1:
            fault = "must be an array of at most one container path"
            faults.at(new_token, below, fault, "D-CONTAINER")
            return None
        if not given:
            return None
        below, given = f"{below}/0", given[0]
    limit = rules.tokens.container_limit
    path = normal_container(given, limit) if type(given) is str else None
    if path is None:
        faults.at(new_token, below, container_rule(given, limit), "D-CONTAINER")
    return path
