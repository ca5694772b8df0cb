# %% [markdown]
# # Open choices in what is stored and shown
# Where the specification is silent the engine follows a *profile*, which has a field for each
# choice. This chapter tries every value of the fields about tokens, records and answers on a small
# case and shows the difference; the next chapter does the same for limits and time. The last table
# here lists the decisions that are fixed.
#
# Clauses: those that leave a choice, among them TOK-OBJECT, TOK-COMPOSITE, TOK-ONE-OF,
# TOK-CARD-DATA, TOK-METADATA, TOK-CONTAINER, TOK-DEDUP, TOK-LIMIT, QUO-DETOKENIZE, REC-CARD-MASK,
# REC-FPEXPR, REC-DEDUP-REDACT, ERR-429.

# %% [markdown]
# **Predict before you read on.** How many choices does the specification leave open about what a
# request body may hold? Guess before you count.

# %%
import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pandas as pd

from engine import (
    CLAUSES,
    DECISIONS,
    Engine,
    InputError,
    LimitTable,
    ManualClock,
    Profile,
    asgi_app,
    choices,
    encrypt,
)

pd.set_option("display.max_colwidth", 150)
CARD: dict[str, Any] = {
    "type": "card",
    "data": {
        "number": "4242424242424242",
        "expiration_month": 12,
        "expiration_year": 2030,
        "cvc": "123",
    },
}


def service(*, kind: Any = "production", **profile: Any) -> tuple[Engine, Any]:
    """Return an engine under a profile, and a tenant of it."""
    engine = Engine(profile=Profile().replace(**profile), clock=ManualClock(), seed=7)
    return engine, engine.create_tenant("Acme", kind)


rows: list[dict[str, Any]] = []


def walk(section: str, cases: dict[str, Any]) -> pd.DataFrame:
    """Run each case under every value of its choice; returns what was seen, a row a value.

    cases: field → a case, or (a case, other values). Each value must show another result than the
    default does.
    """
    known = {choice.name: choice for choice in choices() if choice.section == section}
    began = len(rows)
    for name, given in cases.items():
        choice = known[name]
        case, others = given if isinstance(given, tuple) else (given, [])
        first, *rest = choice.trials(case, *others)
        assert rest, f"{choice.path}: another value is needed"
        assert first[2] not in [seen for _, _, seen in rest], f"{choice.path} shows no difference"
        for value, kind, seen in (first, *rest):
            text = ", ".join(map(str, seen)) if isinstance(seen, list | tuple) else str(seen)
            rows.append({"choice": name, "decision": choice.decision, "question": choice.asks})
            rows[-1] |= {"value": value, "is": kind, "seen": text, "path": choice.path}
    index = ["choice", "decision", "question", "value"]
    return pd.DataFrame(rows[began:])[[*index, "is", "seen"]].set_index(index)


def seen_of(path: str, value: str) -> str:
    """Return what was seen under a value."""
    return next(str(row["seen"]) for row in rows if (row["path"], row["value"]) == (path, value))


# %% [markdown]
# The table counts all open choices.

# %%
known = choices()
pd.Series(
    {
        "choices": len(known),
        "decisions that they belong to": len({choice.decision for choice in known}),
        "choices with a value that is for study alone": sum(bool(one.study) for one in known),
    }
).to_frame("how many")

# %% [markdown]
# A value is the *default*, *permitted* (a conforming service may have it; the conformance suite
# reports which), or for *study*: it is for simulations only, and a deployment that has it fails its
# clause.
#
# ## What is accepted in a body
# Each case sends one body and shows the status, or what came back.


# %%
def status(body: Any, *rights: str, **profile: Any) -> int:
    engine, acme = service(**profile)
    return engine.ask(
        "POST", "/tokenize", body, key=engine.key_for(acme, "token:create", *rights)
    ).status


def sends(body: Any) -> Any:
    return lambda **profile: status(body, **profile)


def token(data: Any = "x", **more: Any) -> dict[str, Any]:
    return {"type": "token", "data": data, **more}


def comes_back(body: Any) -> Any:
    def case(**profile: Any) -> str:
        engine, acme = service(**profile)
        answer = engine.ask("POST", "/tokenize", body, key=engine.key_for(acme, "token:create"))
        age = answer.body.get("age", "refused")
        return "an identifier" if isinstance(age, str) and len(age) == 36 else str(age)

    return case


def both_given(**profile: Any) -> str:
    engine, acme = service(**profile)
    key = engine.key_for(acme, "token:create", "token:read", "encryption-key:create")
    public = engine.ask("POST", "/keys", {"algorithm": "ECDH-ES"}, key=key).body["public_key"]
    sealed = encrypt(public, b'"encrypted"')
    answer = engine.ask("POST", "/tokenize", token("plain", encrypted=sealed), key=key)
    if answer.status != 200:
        return str(answer.status)
    expression = f"{{{{ {answer.body['id']} }}}}"
    return str(engine.ask("POST", "/detokenize", [expression], key=key).body[0])


def nested(depth: int) -> Any:
    return "x" if depth == 0 else [nested(depth - 1)]


def encrypted_twice(**profile: Any) -> str:
    """Seven encrypted payloads of one value, of which only the first makes a token."""
    engine, acme = service(**profile)
    key = engine.key_for(acme, "token:create", "encryption-key:create")
    public = engine.ask("POST", "/keys", {"algorithm": "ECDH-ES"}, key=key).body["public_key"]
    sealed = {"type": "token", "encrypted": encrypt(public, b'"x"'), "deduplicate_token": True}
    return str(engine.ask("POST", "/tokenize", [sealed] * 7, key=key).status)


number = CARD["data"]["number"]
walk(
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
# These are 19 choices. The table compares the result of the default with that of the first other
# value. Some accept more than the default, some less.

# %%
first: dict[str, dict[str, object]] = {}
for row in rows:
    column = "default" if row["is"] == "default" else "another value"
    first.setdefault(row["choice"], {}).setdefault(column, row["seen"])
pairs = [(held["default"], held["another value"]) for held in first.values()]
assert len(pairs) == 19
assert ("400", "200") in pairs, "a value that accepts more"
assert ("200", "400") in pairs, "a value that accepts less"
pd.DataFrame(first).T.rename_axis("choice")

# %% [markdown]
# ## Containers, and what the record shows


# %%
def lands(kind: str, path: str) -> Any:
    def case(**profile: Any) -> str:
        engine, acme = service(**profile)
        key = engine.key_for(acme, "token:create", container=path)
        body = {"token": "x", "card": CARD}[kind]
        return f"{engine.ask('POST', '/tokenize', [body], key=key).status} with {path}"

    return case


def record(body: Any, show: Any) -> Any:
    def case(**profile: Any) -> Any:
        engine, acme = service(**profile)
        return show(
            engine.ask("POST", "/tokenize", body, key=engine.key_for(acme, "token:create")).body
        )

    return case


def read_back(**profile: Any) -> str:
    engine, acme = service(**profile)
    key = engine.key_for(acme, "token:create", "token:read")
    made = engine.ask("POST", "/tokenize", token("Ada"), key=key).body
    return str(engine.ask("GET", f"/tokens/{made['id']}", key=key).body.get("data", "no data"))


def found_without_reading(**profile: Any) -> str:
    engine, acme = service(**profile)
    key = engine.key_for(acme, "token:create", "token:update")
    made = engine.ask("POST", "/tokenize", token("Ada", metadata={"a": "b"}), key=key).body
    shown = engine.ask("PATCH", f"/tokens/{made['id']}", {}, key=key).body
    return "metadata" if "metadata" in shown else "no metadata"


walk(
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
# The cases send a body of six elements, two of which repeat others, and six expressions that name
# one token.


# %%
def six_elements(**profile: Any) -> int:
    engine, acme = service(**profile)
    engine.set_setting(acme, "deduplicate_tokens", on=True)
    body = {"a": "x", "b": ["x", CARD], "c": CARD, "d": "y", "e": "z"}
    return engine.ask("POST", "/tokenize", body, key=engine.key_for(acme, "token:create")).status


def six_expressions(**profile: Any) -> int:
    engine, acme = service(**profile)
    key = engine.key_for(acme, "token:create", "token:read")
    (made,) = engine.ask("POST", "/tokenize", ["Ada"], key=key).body
    return engine.ask("POST", "/detokenize", [f"{{{{ {made} }}}}"] * 6, key=key).status


walk(
    "tokens",
    {
        "limit_counts": six_elements,
        "limit_status": sends(["1", "2", "3", "4", "5", "6"]),
        "detokenize_counts": six_expressions,
    },
)


# %%
assert seen_of("tokens.limit_counts", "created") == "200", "four tokens are within five"
assert seen_of("tokens.limit_counts", "elements") == "400", "six elements are not"
assert seen_of("tokens.card_view", "both") == "data, mask"

# %% [markdown]
# ## Deduplication


# %%
def setting(**profile: Any) -> str:
    engine, acme = service(**profile)
    try:
        engine.set_setting(acme, "deduplicate_tokens", on=True)
    except InputError:
        return "no such setting"
    return "turned on"


def twice(first: Any, second: Any, show: Any) -> Any:
    """Tokenize two equal values, the second with a key that may not read."""

    def case(**profile: Any) -> Any:
        engine, acme = service(**profile)
        name = profile.get("dedup", {}).get("setting_name", "deduplicate_tokens")
        engine.set_setting(acme, name, on=True)
        reader, creator = (
            engine.key_for(acme, "token:create", "token:read"),
            engine.key_for(acme, "token:create"),
        )
        one = engine.ask("POST", "/tokenize", first, key=reader).body
        return show(
            one,
            *(engine.ask("POST", "/tokenize", second, key=key).body for key in (creator, reader)),
        )

    return case


noted = {**CARD, "metadata": {"note": "first"}}
walk(
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
redacted = seen_of("dedup.redact", "data_metadata").split(", ")
assert not {"data", "metadata"} & set(redacted)
assert "mask" in redacted
assert "mask" not in seen_of("dedup.redact", "narrow").split(", ")
assert seen_of("dedup.container_in_key", "true") == "two tokens"

# %% [markdown]
# ## Who may grant which permissions
# A management key with a right on `/pci/` creates an application that holds `token:create` on `/`.


# %%
def beyond(**profile: Any) -> int:
    engine, acme = service(**profile)
    manager = engine.key_for(acme, "application:create", container="/pci/", kind="management")
    grants = [{"container": "/", "permissions": ["token:create"]}]
    body = {"name": "shop", "kind": "private", "grants": grants}
    return engine.ask("POST", "/applications", body, key=manager).status


walk("identity", {"grant_scope": beyond})

# %% [markdown]
# ## Headers, statuses, sizes


# %%
def nobody(path: str) -> Any:
    """Ask without a key: the refusal names the header that is missed."""
    return lambda **profile: service(**profile)[0].ask("GET", path).headers["WWW-Authenticate"]


def refused_with(name: str) -> Any:
    def case(**profile: Any) -> str:
        engine, acme = service(kind="test", **profile)
        key = engine.key_for(acme, "token:read")
        answers = [engine.ask("GET", "/tokens", key=key) for _ in range(51)]
        return f"{answers[-1].status}, {name}: {answers[-1].headers.get(name, 'not there')}"

    return case


def large(**profile: Any) -> int:
    engine, acme = service(**profile)
    headers = {"Content-Type": "application/json"}
    body = json.dumps(["x" * 2000]).encode()
    key = engine.key_for(acme, "token:create")
    return engine.ask("POST", "/tokenize", body, key=key, headers=headers).status


def large_through(**profile: Any) -> int:
    engine, acme = service(**profile)
    proxy = {"name": "pay", "destination_url": "https://shop.example/charge"}
    made = engine.ask("POST", "/proxies", proxy, key=engine.key_for(acme, "proxy:create"))
    return engine.ask("POST", "/proxy", b"x" * 2000, proxy_key=made.body["key"]).status


def over_http(engine: Engine, ip: str, **fields: str) -> httpx.Response:
    """Tokenize over HTTP, from an address; in a thread, as a notebook has a loop of its own."""

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(asgi_app(engine), client=(ip, 40_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.post("/tokenize", json=["Ada"], headers=fields)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asked()).result()


def neighbours(*, http: dict[str, Any]) -> str:
    """Ask from two addresses of one prefix, where an address may ask once in 10 s."""
    once = LimitTable.default().replace_rule("LIM-IP", rate="1/10s")
    engine = Engine(profile=Profile().replace(http=http), limits=once, seed=7)
    asked = [over_http(engine, f"2001:db8::{n}").status_code for n in (1, 2)]
    return "two clients" if asked[0] == asked[1] else "one client"


def repeated(after_s: float) -> Any:
    """Send the same POST with an `Idempotency-Key` twice, some time apart."""

    def case(**profile: Any) -> str:
        engine, acme = service(**profile)
        key, headers = engine.key_for(acme, "token:create"), {"Idempotency-Key": "order-7"}
        found = []
        for _ in range(2):
            answer = engine.ask("POST", "/tokenize", ["Ada"], key=key, headers=headers)
            found.append(answer.body[0])
            assert isinstance(engine.clock, ManualClock)
            engine.clock.advance_ns(f"{after_s}s")
        return "one token" if found[0] == found[1] else "two tokens"

    return case


def read_by(*, http: dict[str, Any]) -> str:
    """Ask with a public key from a page that nobody lists."""
    engine, acme = service(http=http)
    key = engine.key_for(acme, "token:create", kind="public")
    fields = {"SVC-API-KEY": key, "Origin": "https://shop.example"}
    answer = over_http(engine, "203.0.113.7", **fields)
    return "may read" if "Access-Control-Allow-Origin" in answer.headers else "may not read"


walk(
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
            lambda **profile: service(**profile)[0].ask("GET", "/" + "x" * 300).status,
            [256],
        ),
        "cors": read_by,
        "idempotency": repeated(1),
        "idempotency_kept_ns": (repeated(60), [10 * 1_000_000_000]),
        "ipv6_prefix_bits": neighbours,
    },
)

# %% [markdown]
# ## Every choice was tried
# The list comes from the profile itself: every choice of these four sections was tried, with every
# value that it lists.

# %%
here = {"tokens", "dedup", "identity", "http"}
mine = [choice for choice in known if choice.section in here]
tried = {(row["path"], row["value"]) for row in rows}
assert {path for path, _ in tried} == {choice.path for choice in mine}
assert tried >= {(choice.path, choice.written(value)) for choice in mine for value in choice.listed}
pd.Series({"choices": len(mine), "values tried": len(rows)}).to_frame("how many")

# %% [markdown]
# ## Fixed decisions
# Some decisions are fixed: no field of the profile changes them. A deployment may decide otherwise
# as long as it meets the clause. The table shows what is decided, what the engine does, and why it
# is fixed. Very long texts are cut here; `docs/DECISIONS.md` has them in full.

# %%
fixed = [one for one in DECISIONS if not one.fields]
once = pd.DataFrame(
    [(one.id, one.question, one.default, one.fixed) for one in fixed],
    columns=["decision", "question", "the engine", "why it is fixed"],
).set_index("decision")
fields = {path for one in DECISIONS for path in one.fields}
assert fields == {choice.path for choice in known}, "every field belongs to a decision"
print(len(DECISIONS), "decisions,", len(once), "of them fixed")
assert all(one.fixed for one in fixed), "each says why"
assert {name for clause in CLAUSES for name in clause.decisions} <= {one.id for one in DECISIONS}
once

# %% [markdown]
# ## What was learnt
# Every open choice about what is stored and shown is a field of the profile; each value makes a
# difference that can be observed.
#
# ## Exercise
# Let numbers be tokenized (`non_string_leaf = "tokenize"`). What does `{"age": 36}` come back as?

# %% tags=["answer"]
lenient, owner = service(tokens={"non_string_leaf": "tokenize"})
owner_key = lenient.key_for(owner, "token:create")
aged = lenient.ask("POST", "/tokenize", {"age": 36}, key=owner_key).body
print(json.dumps(aged))
assert len(aged["age"]) == 36, "an identifier: 36 characters, by chance"
