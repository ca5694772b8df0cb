# %% [markdown]
# # Every open choice, one: what is stored and shown
# Where the specification is silent the engine follows a *profile*, which has a field for each
# choice. This chapter tries every value of the fields about tokens, records and answers on a small
# case and shows the difference; the next does the same for limits and time. The last section lists
# the decisions that no field holds.
#
# Clauses: those that leave a choice, among them TOK-OBJECT, TOK-COMPOSITE, TOK-ONE-OF,
# TOK-CARD-DATA, TOK-METADATA, TOK-CONTAINER, TOK-DEDUP, TOK-LIMIT, QUO-DETOKENIZE, REC-CARD-MASK,
# REC-FPEXPR, REC-DEDUP-REDACT, ERR-429.

# %% [markdown]
# **Predict before you read on.** How many fields does the specification leave open in how a body is
# read? Guess before you count.

# %%
import json
from typing import Any

import altair as alt
import pandas as pd

from engine import CLAUSES, InputError, Request
from engine.decisions import DECISIONS
from engine.http.addresses import Clients
from engine.http.cors import Cors
from engine.profile import decisions
from engine.vault import jwe
from notebooks.choices_desk import Walk, choices
from notebooks.desk import CARD, Desk
from notebooks.outside_desk import OutsideDesk
from notebooks.pictures import grid

_ = alt.renderers.enable("svg")
pd.set_option("display.max_colwidth", 70)
walk = Walk()
known = list(choices())
print(len(known), "choices in", len(decisions()), "decisions")
print(sum(bool(choice.study) for choice in known), "of them have values that are for study alone")

# %% [markdown]
# A value is the *default*, a *reading* (a conforming service may do it; the conformance suite
# reports which), or for *study*: a simulation may ask what it would do, and a deployment that does
# it fails its clause.
#
# ## What is accepted in a body
# Each case sends one body and shows the status, or what came back.


# %%
def status(body: Any, *rights: str, **profile: Any) -> int:
    desk = Desk(**profile)
    return desk.ask("POST", "/tokenize", body, key=desk.key("token:create", *rights)).status


def sends(body: Any) -> Any:
    return lambda **profile: status(body, **profile)


def token(data: Any = "x", **more: Any) -> dict[str, Any]:
    return {"type": "token", "data": data, **more}


def comes_back(body: Any) -> Any:
    def case(**profile: Any) -> str:
        desk = Desk(**profile)
        answer = desk.ask("POST", "/tokenize", body, key=desk.key("token:create"))
        age = answer.body.get("age", "refused")
        return "an identifier" if isinstance(age, str) and len(age) == 36 else str(age)

    return case


def both_given(**profile: Any) -> str:
    desk = Desk(**profile)
    key = desk.key("token:create", "token:read", "key:create")
    public = desk.ask("POST", "/keys", {"algorithm": "ECDH-ES"}, key=key).body["public_key"]
    sealed = jwe.encrypt(public, b'"encrypted"')
    answer = desk.ask("POST", "/tokenize", token("plain", encrypted=sealed), key=key)
    if answer.status != 200:
        return str(answer.status)
    expression = f"{{{{ {answer.body['id']} }}}}"
    return str(desk.ask("POST", "/detokenize", [expression], key=key).body[0])


def nested(depth: int) -> Any:
    return "x" if depth == 0 else [nested(depth - 1)]


def encrypted_twice(**profile: Any) -> str:
    """Seven encrypted payloads of one value, of which only the first makes a token."""
    desk = Desk(**profile)
    key = desk.key("token:create", "key:create")
    public = desk.ask("POST", "/keys", {"algorithm": "ECDH-ES"}, key=key).body["public_key"]
    sealed = {"type": "token", "encrypted": jwe.encrypt(public, b'"x"'), "deduplicate_token": True}
    return str(desk.ask("POST", "/tokenize", [sealed] * 7, key=key).status)


number = CARD["data"]["number"]
walk.through(
    "tokens",
    {
        "non_string_leaf": comes_back({"age": 36}),
        "scalar_body": sends("Ada"),
        "empty_body": sends({}),
        "depth_limit": (sends(nested(12)), [8]),
        "unknown_field": sends(token(note="y")),
        "extra_types": (sends({"type": "bank", "data": {"iban": "x"}}), [("bank",)]),
        "one_of": both_given,
        "token_data": sends(token({"first": "Ada"})),
        "card_luhn": sends({"type": "card", "data": {"number": "4242424242424241"}}),
        "card_all_required": sends({"type": "card", "data": {"number": number}}),
        "metadata_entries_limit": (sends(token(metadata={"a": "1", "b": "2"})), [1]),
        "metadata_key_limit": (sends(token(metadata={"source": "1"})), [5]),
        "metadata_value_limit": (sends(token(metadata={"source": "signup"})), [5]),
        "indexes_limit": (sends(token(search_indexes=["{{ data }}"])), [0]),
        "cvc_derive": sends({**CARD, "fingerprint_expression": "{{ data.cvc }}"}),
        "elements_limit": (sends([token(deduplicate_token=True)] * 7), [6]),
        "encrypted_limit": (encrypted_twice, [6]),
        "values_limit": (sends([[]] * 250), [400]),
        "container_limit": (sends(token(containers=["/customers/north/"])), [16]),
    },
)

# %% [markdown]
# The same as a picture: what the default makes of each body, and what the first other value does.
# Some readings accept more, some less.

# %%
first: dict[str, dict[str, object]] = {}
for row in walk.rows:
    column = "default" if row["is"] == "default" else "another reading"
    first.setdefault(row["choice"], {}).setdefault(column, row["seen"])
pairs = [(held["default"], held["another reading"]) for held in first.values()]
assert ("400", "200") in pairs, "a reading that accepts more"
assert ("200", "400") in pairs, "a reading that accepts less"
colours = {"400": "#e34948", "refused": "#e34948"}
grid(first, {**dict.fromkeys(("200", "an identifier", "plain"), "#3a9d5d"), **colours})

# %% [markdown]
# ## Where it goes, and what the record shows


# %%
def lands(kind: str, path: str) -> Any:
    def case(**profile: Any) -> str:
        desk = Desk(**profile)
        key = desk.key("token:create", container=path)
        body = {"token": "x", "card": CARD}[kind]
        return f"{desk.ask('POST', '/tokenize', [body], key=key).status} with {path}"

    return case


def record(body: Any, show: Any) -> Any:
    def case(**profile: Any) -> Any:
        desk = Desk(**profile)
        return show(desk.tokenize(body, key=desk.key("token:create")))

    return case


def read_back(**profile: Any) -> str:
    desk = Desk(**profile)
    key = desk.key("token:create", "token:read")
    made = desk.tokenize(token("Ada"), key=key)
    return str(desk.ask("GET", f"/tokens/{made['id']}", key=key).body.get("data", "no data"))


def found_without_reading(**profile: Any) -> str:
    desk = Desk(**profile)
    key = desk.key("token:create", "token:update")
    made = desk.tokenize(token("Ada", metadata={"a": "b"}), key=key)
    shown = desk.ask("PATCH", f"/tokens/{made['id']}", {}, key=key).body
    return "metadata" if "metadata" in shown else "no metadata"


walk.through(
    "tokens",
    {
        "container_field": (sends(token(containers=["/a/"])), ["vault"]),
        "container_form": sends(token(containers="/a/")),
        "container_default_token": (lands("token", "/general/"), ["/plain/"]),
        "container_default_card": (lands("card", "/pci/"), ["/cards/"]),
        "fpexpr_default": record(token(), lambda r: r.get("fingerprint_expression", "nothing")),
        "card_fpexpr": record(
            {**CARD, "fingerprint_expression": "{{ data }}"}, lambda r: r["fingerprint_expression"]
        ),
        "card_view": record(CARD, lambda r: sorted({"mask", "data"} & set(r))),
        "record_view": found_without_reading,
        "plaintext_reads": read_back,
    },
)


# %% [markdown]
# ## What the token quotas count
# A body of six elements, two of which repeat others; and six expressions that name one token.


# %%
def six_elements(**profile: Any) -> int:
    desk = Desk(**profile)
    desk.engine.set_setting(desk.tenant, "deduplicate_tokens", on=True)
    body = {"a": "x", "b": ["x", CARD], "c": CARD, "d": "y", "e": "z"}
    return desk.ask("POST", "/tokenize", body, key=desk.key("token:create")).status


def six_expressions(**profile: Any) -> int:
    desk = Desk(**profile)
    key = desk.key("token:create", "token:read")
    (made,) = desk.tokenize(["Ada"], key=key)
    return desk.ask("POST", "/detokenize", [f"{{{{ {made} }}}}"] * 6, key=key).status


walk.through(
    "tokens",
    {
        "limit_counts": six_elements,
        "limit_status": sends(["1", "2", "3", "4", "5", "6"]),
        "detokenize_counts": six_expressions,
    },
)


# %%
assert walk.seen("tokens.limit_counts", "created") == "200", "four tokens are within five"
assert walk.seen("tokens.limit_counts", "elements") == "400", "six elements are not"
assert walk.seen("tokens.card_view", "both") == "data, mask"

# %% [markdown]
# ## Deduplication


# %%
def setting(**profile: Any) -> str:
    desk = Desk(**profile)
    try:
        desk.engine.set_setting(desk.tenant, "deduplicate_tokens", on=True)
    except InputError:
        return "no such setting"
    return "turned on"


def twice(first: Any, second: Any, show: Any) -> Any:
    """Tokenize two equal values, the second with a key that may not read."""

    def case(**profile: Any) -> Any:
        desk = Desk(**profile)
        name = profile.get("dedup", {}).get("setting_name", "deduplicate_tokens")
        desk.engine.set_setting(desk.tenant, name, on=True)
        reader, creator = desk.key("token:create", "token:read"), desk.key("token:create")
        one = desk.tokenize(first, key=reader)
        return show(one, desk.tokenize(second, key=creator), desk.tokenize(second, key=reader))

    return case


noted = {**CARD, "metadata": {"note": "first"}}
walk.through(
    "dedup",
    {
        "setting_name": (setting, ["deduplicate"]),
        "flag_name": (sends(token(deduplicate_token=True)), ["deduplicate"]),
        "container_in_key": twice(
            token(containers=["/a/"]),
            token(containers=["/b/"]),
            lambda one, two, _: "one token" if one["id"] == two["id"] else "two tokens",
        ),
        "record": twice(
            noted,
            {**CARD, "metadata": {"note": "second"}},
            lambda _, __, again: again["metadata"],
        ),
        "redact": twice(noted, noted, lambda _, redacted, __: sorted(redacted)),
    },
)


# %%
redacted = walk.seen("dedup.redact", "data_metadata").split(", ")
assert not {"data", "metadata"} & set(redacted)
assert "mask" in redacted
assert "mask" not in walk.seen("dedup.redact", "narrow").split(", ")
assert walk.seen("dedup.container_in_key", "True") == "two tokens"

# %% [markdown]
# ## Who gives which rights
# A management key of `/pci/` makes an application that holds `token:create` on `/`.


# %%
def beyond(**profile: Any) -> int:
    desk = Desk(**profile)
    manager = desk.key("application:create", container="/pci/", kind="management")
    grants = [{"container": "/", "permissions": ["token:create"]}]
    body = {"name": "shop", "kind": "private", "grants": grants}
    return desk.ask("POST", "/applications", body, key=manager).status


walk.through("identity", {"grant_scope": beyond})

# %% [markdown]
# ## Headers, statuses, sizes


# %%
def nobody(path: str) -> Any:
    """Ask without a key: the refusal names the header that is missed."""
    return lambda **profile: Desk(**profile).ask("GET", path, key=None).headers["WWW-Authenticate"]


def refused_with(name: str) -> Any:
    def case(**profile: Any) -> str:
        desk = Desk(kind="test", **profile)
        key = desk.key("token:read")
        answers = [desk.ask("GET", "/tokens", key=key) for _ in range(51)]
        return f"{answers[-1].status}, {name}: {answers[-1].headers.get(name, 'not there')}"

    return case


def large(**profile: Any) -> int:
    desk = Desk(**profile)
    headers = {"Content-Type": "application/json"}
    body = json.dumps(["x" * 2000]).encode()
    key = desk.key("token:create")
    request = Request("POST", "/tokenize", key=key, ip="203.0.113.7", headers=headers, body=body)
    return desk.engine.handle(request).status


def large_through(**profile: Any) -> int:
    desk = OutsideDesk(**profile)
    sent = desk.at(0, "POST", "/proxy", b"x" * 2000, key=None, proxy_key=desk.proxy())
    desk.run()
    return int(sent.result.status)


def neighbours(*, http: dict[str, Any]) -> str:
    clients = Clients(prefix_bits=http["ipv6_prefix_bits"])
    found = {clients.of(f"2001:db8::{n}", []) for n in (1, 2)}
    return "two clients" if len(found) == 2 else "one client"


def repeated(after_s: float) -> Any:
    """Send the same POST with an `Idempotency-Key` twice, some time apart."""

    def case(**profile: Any) -> str:
        desk = Desk(**profile)
        key, headers = desk.key("token:create"), {"Idempotency-Key": "order-7"}
        found = []
        for _ in range(2):
            answer = desk.engine.ask("POST", "/tokenize", ["Ada"], key=key, headers=headers)
            found.append(answer.body[0])
            desk.wait(after_s)
        return "one token" if found[0] == found[1] else "two tokens"

    return case


def read_by(*, http: dict[str, Any]) -> str:
    """Ask with a public key from a page that nobody lists."""
    desk = Desk(http=http)
    key = desk.key("token:create", kind="public")
    request = Request("POST", "/tokenize", key=key, ip="203.0.113.7", body=["Ada"])
    answer = desk.engine.handle(request)
    Cors(desk.engine).add(request, answer, "https://shop.example")
    return "may read" if "Access-Control-Allow-Origin" in answer.headers else "may not read"


walk.through(
    "http",
    {
        "key_header": (nobody("/tokens"), ["X-API-Key"]),
        "proxy_key_header": (nobody("/proxy"), ["X-Proxy-Key"]),
        "tokenize_status": sends(["x"]),
        "rate_limit_fields": refused_with("RateLimit"),
        "retry_after": refused_with("Retry-After"),
        "body_limit_bytes": (large, [1000]),
        "proxy_body_limit_bytes": (large_through, [1000]),
        "target_limit": (
            lambda **profile: Desk(**profile).ask("GET", "/" + "x" * 300, key=None).status,
            [256],
        ),
        "cors": read_by,
        "idempotency": repeated(1),
        "idempotency_kept_ns": (repeated(60), [10 * 1_000_000_000]),
        "ipv6_prefix_bits": neighbours,
    },
)

# %% [markdown]
# ## None is missing
# The list comes from the profile itself: every choice of these four sections was walked, and
# every value that it lists.

# %%
here = {"tokens", "dedup", "identity", "http"}
mine = [choice for choice in known if choice.section in here]
print(len(mine), "choices,", len(walk.rows), "values tried")
assert walk.walked() == {choice.path for choice in mine}
assert walk.tried() >= {
    (choice.path, choice.written(value))
    for choice in mine
    for value in (choice.default, *choice.readings, *choice.study)
}

# %% [markdown]
# ## Decided once
# The profile does not hold every decision. For the others the engine does one thing; a deployment
# may do another as long as its clause holds. The table is made from the list of decisions:
# what is decided, what the engine does, and why no field holds it.

# %%
fixed = [one for one in DECISIONS if not one.fields]
once = pd.DataFrame(
    [(one.id, one.question, one.default, one.fixed) for one in fixed],
    columns=["decision", "decides", "the engine", "why"],
).set_index("decision")
print(len(DECISIONS), "decisions:", len(decisions()), "in the profile,", len(once), "decided once")
assert {one.id: list(one.fields) for one in DECISIONS if one.fields} == decisions()
assert all(one.fixed for one in fixed), "each says why"
assert {name for clause in CLAUSES for name in clause.decisions} <= {one.id for one in DECISIONS}
once

# %% [markdown]
# ## What was learnt
# Every open choice about what is stored and shown is a field of the profile; each value makes a
# difference that can be seen.
#
# ## Exercise
# Let numbers be tokenized (`non_string_leaf = "tokenize"`). What does `{"age": 36}` come back as?

# %% tags=["answer"]
lenient_desk = Desk(tokens={"non_string_leaf": "tokenize"})
aged = lenient_desk.tokenize({"age": 36}, key=lenient_desk.key("token:create"))
print(aged)
assert len(aged["age"]) == 36, "an identifier: 36 characters, by chance"
