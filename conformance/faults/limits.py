"""Faults of limits, quotas, proxies, reactors and the account updater (section 8)."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from conformance.faults.access import fault_of_subjects
from conformance.faults.bodies import requests_in
from conformance.faults.registry import (
    FAULTS,
    Fault,
    FaultyEngine,
    Submit,
    around_responses,
    fault,
    fault_of_limits,
    fault_of_profile,
    fault_of_quotas,
    fault_of_responses,
    json_of,
    with_body,
)
from engine import Decision, LimitTable, Profile, Request, Response
from engine.files import Rate
from engine.limits import RateLimitStatus, Rule, Subject
from engine.limits.counters import Counter
from engine.limits.table import CounterName
from engine.messages import Problem
from engine.model import DEFAULT_QUOTAS
from engine.tokens.stored import timestamp

_SECOND_NS: Final = 1_000_000_000
_ROWS: Final = tuple(rule.id for rule in LimitTable.default())


def _each(table: LimitTable, change: Callable[[Rule], dict[str, Any]]) -> LimitTable:
    for rule in table:
        changed = change(rule)
        if changed:
            table = table.replace_rule(rule.id, **changed)
    return table


def _row_fault(
    fault_id: str, rule_id: str, description: str, change: Callable[[Rule], dict[str, Any]]
) -> None:
    """Register a fault of one row.

    description: what is wrong with it; change: returns its new fields.
    """

    def changed(table: LimitTable) -> LimitTable:
        return table.replace_rule(rule_id, **change(table[rule_id]))

    changed.__doc__ = f"{rule_id} {description}"
    fault_of_limits(fault_id, rule_id)(changed)


def _rate(number: int = 100, window: int = 100, more: int = 0) -> Callable[[Rule], dict[str, Any]]:
    """Return a change of a rate; number, window: percent of the row's own."""

    def change(rule: Rule) -> dict[str, Any]:
        limit_requests = rule.limit_requests * number // 100 + more
        return {"rate": Rate(limit_requests, rule.window_ns * window // 100)}

    return change


def _block(percent: int) -> Callable[[Rule], dict[str, Any]]:
    """Return a change of a block's length, in percent of the row's own."""
    return lambda rule: {"block_ns": (rule.block_ns or 0) * percent // 100}


def _counted_by(rule_id: str, counter: CounterName) -> None:
    fault_id = f"by-{counter.replace('+', '-and-')}-{rule_id}"
    _row_fault(fault_id, rule_id, f"counts by {counter}.", lambda _: {"counter": counter})


def _resource(*resource: str) -> Callable[[Rule], dict[str, Any]]:
    """Return a change of the methods and paths that a row counts."""
    return lambda rule: {"match": dataclasses.replace(rule.match, resource=resource)}


for _row in _ROWS:
    _row_fault(f"one-more-{_row}", _row, "admits one request more than its rate.", _rate(more=1))
for _row, _less, _numbers, _windows, _blocks in (
    ("LIM-TEST-TENANT", True, (90, 110), (90, 110), ()),
    ("LIM-SEARCH", True, (), (90, 110), ()),
    ("LIM-READ", False, (90, 110), (90,), ()),
    ("LIM-CREATE", False, (90, 110), (110,), ()),
    ("LIM-PATCH", False, (90, 110), (90, 110), ()),
    ("LIM-DELETE", False, (90, 110), (90, 110), ()),
    ("LIM-ACCOUNT-UPDATER", True, (), (110,), ()),
    ("LIM-PUBLIC", True, (90, 110, 120), (90, 110), (50, 150, 200, 600, 1200)),
    ("LIM-MANAGEMENT", True, (90, 110, 120), (90,), (50, 150, 200)),
    ("LIM-PROXY-KEY", False, (110,), (90, 110), ()),
    ("LIM-PROXY-HOST", True, (), (90,), ()),
    ("LIM-IP", False, (90,), (110,), (50, 150, 200)),
    ("LIM-LEGACY", True, (90, 110, 120), (110,), ()),
):
    if _less:
        _row_fault(
            f"one-less-{_row}", _row, "refuses the last request of its rate.", _rate(more=-1)
        )
    for _part, _percents, _description, _changed in (
        ("number", _numbers, "admits {} % of its rate.", lambda percent: _rate(number=percent)),
        ("window", _windows, "has {} % of its window.", lambda percent: _rate(window=percent)),
        ("block", _blocks, "blocks for {} % of its time.", _block),
    ):
        for _percent in _percents:
            _fault_id = f"{_part}-{_percent}-{_row}"
            _row_fault(_fault_id, _row, _description.format(_percent), _changed(_percent))


# --- counters -------------------------------------------------------------------------------------


@fault_of_profile("by-key-only", "LIM-TEST-TENANT")
def _by_key_only(profile: Profile) -> Profile:
    """Rows that count by IP address and API key count by key alone."""
    return profile.replace(limits={"and_counter": "key"})


@fault_of_profile("by-ip-only", "LIM-TEST-TENANT")
def _by_ip_only(profile: Profile) -> Profile:
    """Rows that count by IP address and API key count by IP address alone."""
    return profile.replace(limits={"and_counter": "ip"})


@fault_of_limits("management-by-pair", "LIM-MANAGEMENT")
def _management_by_pair(table: LimitTable) -> LimitTable:
    """LIM-MANAGEMENT counts each address of a key separately."""
    return table.replace_rule("LIM-MANAGEMENT", counter="ip+key")


@fault_of_limits("legacy-by-key", "LIM-LEGACY")
def _legacy_by_key(table: LimitTable) -> LimitTable:
    """LIM-LEGACY counts by key alone."""
    return table.replace_rule("LIM-LEGACY", counter="key")


@fault_of_limits("ip-by-pair", "LIM-IP")
def _ip_by_pair(table: LimitTable) -> LimitTable:
    """LIM-IP counts each key of an address separately."""
    return table.replace_rule("LIM-IP", counter="ip+key")


_counted_by("LIM-PUBLIC", "key")
_counted_by("LIM-PUBLIC", "ip")
_counted_by("LIM-LEGACY", "ip")
_counted_by("LIM-SEARCH", "key")
_counted_by("LIM-CREATE", "ip")
_counted_by("LIM-PRIVATE", "ip+key")
_counted_by("LIM-PRIVATE", "ip")


@fault_of_subjects("ip-by-kind", "LIM-IP")
def _ip_by_kind(subject: Subject) -> dict[str, Any]:
    """LIM-IP counts each kind of application at an address separately."""
    return {"ip": f"{subject.ip} {subject.application_kind}"}


@fault("search-counted-by-node", "LIM-SEARCH")
async def _search_counted_by_node(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """Two nodes behind a load balancer each count only the searches that they receive."""
    if request.path.partition("?")[0] == "/tokens/search" and engine.turn("search") % 2:
        request.ip = "198.18." + request.ip.split(".", 2)[2]
    return await submit(request)


@fault("failures-counted-apart", "LIM-TEST-TENANT")
async def _failures_counted_apart(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A request whose `encrypted` is a number has a counter of its own."""
    if any(isinstance(asked.get("encrypted"), int) for asked in requests_in(json_of(request))):
        request.ip = "198.18." + request.ip.split(".", 2)[2]
    return await submit(request)


@fault_of_subjects("public-legacy-unlimited", "LIM-LEGACY")
def _public_legacy_unlimited(subject: Subject) -> dict[str, Any]:
    """A legacy key of a public application is limited neither as legacy nor as public."""
    is_both = subject.legacy and subject.application_kind == "public"
    return {"legacy": False, "application_kind": None} if is_both else {}


@fault_of_profile("create-counted-apart", "LIM-CREATE")
def _create_counted_apart(profile: Profile) -> Profile:
    """POST /tokens and POST /tokenize have a counter each."""
    return profile.replace(limits={"or_resource": "separate"})


for _id, _row, _paths in (
    ("create-without-tokens", "LIM-CREATE", ("POST /tokenize",)),
    ("read-without-detokenize", "LIM-READ", ("GET /tokens",)),
    ("patch-with-delete", "LIM-PATCH", ("PATCH /tokens/{id}", "DELETE /tokens/{id}")),
    ("delete-with-patch", "LIM-DELETE", ("PATCH /tokens/{id}", "DELETE /tokens/{id}")),
    ("updater-posts-only", "LIM-ACCOUNT-UPDATER", ("POST /account-updater/*",)),
    ("updater-jobs-only", "LIM-ACCOUNT-UPDATER", ("ANY /account-updater/jobs",)),
    ("test-tenant-creation-only", "LIM-TEST-TENANT", ("POST /tokenize", "POST /tokens")),
):
    _description = f"counts {' and '.join(_paths)}, and nothing else."
    _row_fault(_id, _row, _description, _resource(*_paths))


@fault_of_subjects("ids-counted-apart", "LIM-DELETE")
def _ids_counted_apart(subject: Subject) -> dict[str, Any]:
    """DELETE counts each token's id separately."""
    if subject.method != "DELETE" or not subject.path.startswith("/tokens/"):
        return {}
    return {"key_id": f"{subject.key_id} {subject.path}"}


@fault_of_subjects("patch-not-counted", "LIM-PATCH")
def _patch_not_counted(subject: Subject) -> dict[str, Any]:
    """PATCH is limited only by rows that apply to any method."""
    return {"method": "HEAD"} if subject.method == "PATCH" else {}


# --- composition, throttle, block -----------------------------------------------------------------


@fault_of_profile("lowest-row-alone", "LIM-LOWEST")
def _lowest_row_alone(profile: Profile) -> Profile:
    """Of the rows that apply, only those with the lowest rate count."""
    return profile.replace(limits={"compose": "lowest"})


@fault_of_limits("create-not-in-test", "LIM-LOWEST")
def _create_not_in_test(table: LimitTable) -> LimitTable:
    """LIM-TEST-TENANT does not count POST, so POST /tokens is limited to 200 requests, not 50."""
    change = _resource(*(f"{method} /*" for method in ("GET", "PUT", "PATCH", "DELETE")))
    return table.replace_rule("LIM-TEST-TENANT", **change(table["LIM-TEST-TENANT"]))


@fault_of_limits("throttle-only-watches", "LIM-THROTTLE")
def _throttle_only_watches(table: LimitTable) -> LimitTable:
    """Throttle rows count requests but refuse none."""
    return _each(table, lambda rule: {"shadow": True} if rule.action == "throttle" else {})


@fault_of_limits("throttle-blocks", "LIM-READ")
def _throttle_blocks(table: LimitTable) -> LimitTable:
    """A caller that exceeds LIM-READ is blocked for 15 s, as if it were a block row."""
    return table.replace_rule("LIM-READ", action="block", block_ns=15 * _SECOND_NS)


@fault_of_limits("block-missing", "LIM-BLOCK")
def _block_missing(table: LimitTable) -> LimitTable:
    """Block rows throttle: a caller is admitted again as soon as there is room."""

    def change(rule: Rule) -> dict[str, Any]:
        return {"action": "throttle", "block_ns": None} if rule.action == "block" else {}

    return _each(table, change)


@fault_of_limits("block-half-as-long", "LIM-BLOCK")
def _block_half_as_long(table: LimitTable) -> LimitTable:
    """Blocks last half as long."""
    return _each(table, lambda rule: {"block_ns": rule.block_ns // 2} if rule.block_ns else {})


@fault_of_limits("block-twice-as-long", "LIM-BLOCK")
def _block_twice_as_long(table: LimitTable) -> LimitTable:
    """Blocks last twice as long."""
    return _each(table, lambda rule: {"block_ns": rule.block_ns * 2} if rule.block_ns else {})


@fault_of_limits("block-tenth-short", "LIM-PUBLIC")
def _block_tenth_short(table: LimitTable) -> LimitTable:
    """LIM-PUBLIC blocks for 9 s of its 10 s."""
    return table.replace_rule("LIM-PUBLIC", block_ns=9 * _SECOND_NS)


# --- every method and path of a row for any -------------------------------------------------------


for _row, _name, _methods in (
    ("LIM-MANAGEMENT", "delete", ("GET", "POST", "PUT", "PATCH")),
    ("LIM-PUBLIC", "all-but-post", ("POST",)),
    ("LIM-LEGACY", "get", ("POST", "PUT", "PATCH", "DELETE")),
    ("LIM-TEST-TENANT", "patch", ("GET", "POST", "PUT", "DELETE")),
    ("LIM-PRIVATE", "patch", ("GET", "POST", "PUT", "DELETE")),
    ("LIM-PRIVATE", "delete", ("GET", "POST", "PUT", "PATCH")),
    ("LIM-IP", "patch", ("GET", "POST", "PUT", "DELETE")),
    ("LIM-IP", "delete", ("GET", "POST", "PUT", "PATCH")),
    ("LIM-PROXY-KEY", "put", ("GET", "POST", "PATCH", "DELETE")),
    ("LIM-PROXY-HOST", "delete", ("GET", "POST", "PUT", "PATCH")),
):
    _description = f"counts and refuses {', '.join(_methods)} only."
    _change = _resource(*(f"{method} /*" for method in _methods))
    _row_fault(f"any-without-{_name}-{_row}", _row, _description, _change)


# --- whom a block shuts out -----------------------------------------------------------------------

_Around = Callable[[FaultyEngine, Request, Submit], Awaitable[Response]]


def _wider(rule_id: str, kind: str, block_ns: int, shared: tuple[str, ...]) -> _Around:
    async def around(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
        caller = engine.identify(request)
        response = await submit(request)
        if caller is None or caller.application.kind != kind:
            return response
        now_ns = engine.clock.now_ns
        own = f"{request.key} {request.ip}"
        texts = {"key": request.key, "address": request.ip}
        for place in (f"blocked by {name} {texts[name]}" for name in shared):
            until_text, _, blocked = engine.notes.get(place, "0 ").partition(" ")
            is_over = int(until_text) <= now_ns
            if response.decision.outcome == "blocked" and is_over:
                engine.notes[place] = f"{now_ns + block_ns} {own}"
            elif not is_over and blocked != own:
                response = dataclasses.replace(response, status=429)
        return response

    around.__doc__ = f"The block of {rule_id} refuses all with the same {' or '.join(shared)}."
    return around


for _row, _kind, _block_s, _shared in (
    ("LIM-PUBLIC", "public", 10, ("key",)),
    ("LIM-PUBLIC", "public", 10, ("address",)),
    ("LIM-PUBLIC", "public", 10, ("key", "address")),
    ("LIM-MANAGEMENT", "management", 60, ("address",)),
):
    fault(f"block-of-{'-and-'.join(_shared)}-{_row}", _row)(
        _wider(_row, _kind, _block_s * _SECOND_NS, _shared)
    )


# --- which requests a limit counts ----------------------------------------------------------------


def _uncounted(engine: FaultyEngine, request: Request) -> None:
    """Let no counter of an address hold a request: it comes from an address of its own."""
    turn = engine.turn("uncounted")
    request.ip = f"198.{18 + turn // 65_536 % 2}.{turn // 256 % 256}.{turn % 256}"


def _left_out(
    fault_id: str,
    rule_id: str,
    description: str,
    is_left_out: Callable[[FaultyEngine, Request], bool],
) -> None:
    """Register a fault: a row does not see some requests."""

    async def around(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
        if is_left_out(engine, request):
            _uncounted(engine, request)
        response = await submit(request)
        if _path_of(request) == "/tokenize" and isinstance(response.body, dict):
            made = [value for value in response.body.values() if isinstance(value, str)]
            engine.notes |= {f"token {value}": "" for value in made}
        return response

    around.__doc__ = f"{rule_id} does not count {description}."
    fault(fault_id, rule_id)(around)


def _path_of(request: Request) -> str:
    return request.path.partition("?")[0]


_left_out(
    "query-not-counted-LIM-SEARCH",
    "LIM-SEARCH",
    "requests with a query string",
    lambda _, request: request.path.startswith("/tokens/search?"),
)
_left_out(
    "query-not-counted-LIM-READ",
    "LIM-READ",
    "requests with a query string",
    lambda _, request: request.path.startswith("/tokens?"),
)
_left_out(
    "existing-not-counted",
    "LIM-PATCH",
    "requests for tokens that exist",
    lambda engine, request: request.method == "PATCH" and _exists(engine, request),
)
_left_out(
    "empty-bodies-not-counted",
    "LIM-CREATE",
    "requests without a token: it counts tokens",
    lambda _, request: _path_of(request) == "/tokenize" and request.body == b"{}",
)
_left_out(
    "sized-not-counted",
    "LIM-SEARCH",
    "searches that give a size",
    lambda _, request: request.path == "/tokens/search" and "size" in str(request.body),
)
_left_out(
    "bodies-not-counted",
    "LIM-PROXY-KEY",
    "requests with a body",
    lambda _, request: request.proxy_key is not None and bool(request.body),
)
_left_out(
    "metadata-not-counted",
    "LIM-CREATE",
    "bodies with metadata",
    lambda _, request: _path_of(request) == "/tokenize" and "metadata" in str(request.body),
)
_left_out(
    "bare-patch-not-counted",
    "LIM-PATCH",
    "requests without a body",
    lambda _, request: request.method == "PATCH" and not request.body,
)
_left_out(
    "unknown-not-counted",
    "LIM-TEST-TENANT",
    "requests for tokens that do not exist",
    lambda engine, request: (
        request.method == "GET"
        and request.path.startswith("/tokens/")
        and not _exists(engine, request)
    ),
)
_left_out(
    "options-not-counted",
    "LIM-TEST-TENANT",
    "OPTIONS",
    lambda _, request: request.method == "OPTIONS",
)
_left_out(
    "forwarded-not-counted",
    "LIM-TEST-TENANT",
    "requests with X-Forwarded-For",
    lambda _, request: "X-Forwarded-For" in (request.headers or {}),
)


_CHARGED: Final = WeakKeyDictionary[FaultyEngine, list[tuple[Counter, Any, int]]]()


def _note_counters(engine: FaultyEngine) -> None:
    """Note what the management row's counter of each request is, before it is charged."""
    decide = engine.limiter.decide_with_status

    def noted(now_ns: int, subject: Subject) -> tuple[Decision, RateLimitStatus | None]:
        _CHARGED[engine] = [
            (counter, copy.deepcopy(counter.window), counter.ready_ns)
            for counter in engine.limiter.match(subject).counters
            if counter.settings.name == "LIM-MANAGEMENT"
        ]
        return decide(now_ns, subject)

    engine.limiter.decide_with_status = noted  # type: ignore[method-assign] # reason: the fault


async def _given_back(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    response = await submit(request)
    for counter, window, ready_ns in _CHARGED[engine] if response.status == 404 else ():
        counter.window, counter.ready_ns = window, ready_ns
    return response


FAULTS["missing-not-counted"] = Fault(
    "missing-not-counted",
    "LIM-MANAGEMENT",
    "LIM-MANAGEMENT does not count requests that are answered 404.",
    prepare=_note_counters,
    around=_given_back,
)


def _exists(engine: FaultyEngine, request: Request) -> bool:
    """Whether a request is for a token that was created here."""
    return f"token {_path_of(request).rpartition('/')[2]}" in engine.notes


# --- limits over time -----------------------------------------------------------------------------


def _over_time(
    fault_id: str, rule_id: str, description: str, is_free: Callable[[list[int], int], bool]
) -> None:
    """Register a fault of a block row; is_free: whether to admit, by the refusals so far."""

    async def around(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
        caller = engine.identify(request)
        if caller is None or caller.application.kind != "public":
            return await submit(request)
        place = f"refusals {request.key} {request.ip}"
        refusals = [int(text) for text in engine.notes.get(place, "").split()]
        if is_free(refusals, engine.clock.now_ns):
            _uncounted(engine, request)
        response = await submit(request)
        if response.status == 429:
            engine.notes[place] = " ".join(map(str, [*refusals, engine.clock.now_ns]))
        return response

    around.__doc__ = f"{rule_id} {description}."
    fault(fault_id, rule_id)(around)


def _block_starts(refusals: list[int]) -> list[int]:
    """Return when blocks of 10 s began."""
    begun: list[int] = []
    for at_ns in refusals:
        if not begun or at_ns >= begun[-1] + 10 * _SECOND_NS:
            begun.append(at_ns)
    return begun


_over_time(
    "second-block-half",
    "LIM-PUBLIC",
    "blocks for half of its time from the second block on",
    lambda refusals, now_ns: (
        len(_block_starts(refusals)) > 1 and now_ns >= _block_starts(refusals)[-1] + 5 * _SECOND_NS
    ),
)
_over_time(
    "no-limit-after-the-first-block",
    "LIM-PUBLIC",
    "limits nobody whose first block is over",
    lambda refusals, now_ns: bool(refusals) and now_ns >= refusals[0] + 10 * _SECOND_NS,
)


def _throttled(table: LimitTable) -> LimitTable:
    return table.replace_rule("LIM-PUBLIC", action="throttle", block_ns=None)


_REFUSALS_TO_BLOCK: Final = 3


async def _blocks_late(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Let a block of 10 s begin with the third refusal in a row."""
    caller = engine.identify(request)
    if caller is None or caller.application.kind != "public":
        return await submit(request)
    now_ns, counted = engine.clock.now_ns, f"refused {request.key} {request.ip}"
    blocked = f"blocked {request.key} {request.ip}"
    if int(engine.notes.get(blocked, "0")) > now_ns:
        return Problem(429, "Too many requests.").response()
    response = await submit(request)
    refusals = int(engine.notes.get(counted, "0")) + 1 if response.status == 429 else 0
    engine.notes[counted] = str(refusals % _REFUSALS_TO_BLOCK)
    if refusals == _REFUSALS_TO_BLOCK:
        engine.notes[blocked] = str(now_ns + 10 * _SECOND_NS)
    return response


FAULTS["block-from-third-refusal"] = Fault(
    "block-from-third-refusal",
    "LIM-PUBLIC",
    "LIM-PUBLIC blocks only from the third refusal in a row on.",
    limits=_throttled,
    around=_blocks_late,
)


@fault("unused-rate-carried-over", "LIM-SEARCH")
async def _unused_rate_carried_over(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """LIM-SEARCH admits twice the rate after a window without a request."""
    if _path_of(request) != "/tokens/search":
        return await submit(request)
    place, now_ns = f"search {request.key} {request.ip}", engine.clock.now_ns
    last_ns, credit = map(int, engine.notes.get(place, f"{now_ns} 0").split())
    if now_ns - last_ns > 15 * _SECOND_NS:
        credit = 50
    engine.notes[place] = f"{now_ns} {max(0, credit - 1)}"
    if credit:
        _uncounted(engine, request)
    return await submit(request)


# --- proxies, reactors, the account updater -------------------------------------------------------


@fault_of_profile("destination-timeout-longer", "PRX-TIMEOUT")
def _destination_timeout_longer(profile: Profile) -> Profile:
    """A destination may take 27 s."""
    return profile.replace(outside={"destination_timeout_ns": 27 * _SECOND_NS})


@fault_of_profile("destination-timeout-shorter", "PRX-TIMEOUT")
def _destination_timeout_shorter(profile: Profile) -> Profile:
    """A destination may take 20 s."""
    return profile.replace(outside={"destination_timeout_ns": 20 * _SECOND_NS})


@fault("custom-host-without-timeout", "PRX-TIMEOUT")
async def _host_without_timeout(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A destination behind a custom hostname may take as long as it needs."""
    response = await submit(request)
    if response.status == 408 and request.host is not None and request.proxy_key is None:
        await engine.services.world.sleep_ns(10 * _SECOND_NS)
        return Response(200, {"is": "late"})
    return response


@fault_of_responses("timeout-as-bad-gateway", "ERR-408")
def _timeout_as_bad_gateway(_: FaultyEngine, __: Request, response: Response) -> Response | None:
    """A destination that takes too long gets 502, like one that cannot be reached."""
    return dataclasses.replace(response, status=502) if response.status == 408 else None


@fault_of_profile("code-a-tenth-longer", "RCT-CODE")
def _code_longer(profile: Profile) -> Profile:
    """Reactor code may have 55,000 characters."""
    return profile.replace(outside={"reactor_code_limit": 55_000})


@fault("code-counted-in-bytes", "RCT-CODE")
async def _code_in_bytes(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Reactor code may have 50,000 bytes."""
    body = json_of(request) if request.path.startswith("/reactors") else None
    code = body.get("code") if isinstance(body, dict) else None
    limit = engine.profile.outside.reactor_code_limit
    if isinstance(code, str) and len(code.encode()) > limit:
        return Problem(400, "The code is too long.").response()
    return await submit(request)


@fault("code-unchecked-in-patch", "RCT-CODE")
async def _code_unchecked(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A PATCH may make a reactor's code as long as it likes."""
    is_patch = request.method == "PATCH" and request.path.startswith("/reactors/")
    body = json_of(request) if is_patch else None
    code = body.get("code") if isinstance(body, dict) else None
    if isinstance(body, dict) and isinstance(code, str):
        cut = code[: engine.profile.outside.reactor_code_limit]
        return await submit(with_body(request, {**body, "code": cut}))
    return await submit(request)


@fault("payload-counted-in-characters", "RCT-PAYLOAD")
async def _payload_in_characters(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """An invocation may carry as many characters as it may bytes."""
    limit = engine.profile.outside.reactor_payload_limit_bytes
    body = json_of(request) if request.path.endswith("/react") else None
    text = body.get("args") if isinstance(body, dict) else None
    if isinstance(body, dict) and isinstance(text, str) and len(text) < limit < len(text.encode()):
        return await submit(with_body(request, {**body, "args": "x"}))
    return await submit(request)


@fault_of_profile("payload-twice-as-long", "RCT-PAYLOAD")
def _payload_twice(profile: Profile) -> Profile:
    """An invocation may carry 2 MB."""
    return profile.replace(outside={"reactor_payload_limit_bytes": 2_000_000})


@fault_of_profile("payload-a-tenth-less", "RCT-PAYLOAD")
def _payload_less(profile: Profile) -> Profile:
    """An invocation may carry 0.9 MB only."""
    return profile.replace(outside={"reactor_payload_limit_bytes": 900_000})


@fault("one-invocation-at-a-time", "RCT-HOT")
async def _one_at_a_time(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A reactor that is busy refuses further invocations."""
    path = request.path
    if not path.endswith("/react"):
        return await submit(request)
    if path in engine.notes:
        return Problem(409, "The reactor is busy.").response()
    engine.notes[path] = "busy"
    try:
        return await submit(request)
    finally:
        del engine.notes[path]


@fault_of_profile("reactor-timeout-longer", "RCT-TIMEOUT")
def _reactor_timeout_longer(profile: Profile) -> Profile:
    """A reactor may take 60 s."""
    return profile.replace(outside={"reactor_timeout_ns": 60 * _SECOND_NS})


@fault_of_profile("reactor-timeout-shorter", "RCT-TIMEOUT")
def _reactor_timeout_shorter(profile: Profile) -> Profile:
    """A reactor may take 20 s only."""
    return profile.replace(outside={"reactor_timeout_ns": 20 * _SECOND_NS})


@fault_of_profile("file-a-tenth-less", "ACC-FILE")
def _file_less(profile: Profile) -> Profile:
    """A batch file may have 27 MB only."""
    return profile.replace(account_updater={"file_limit_bytes": 27_000_000})


@fault("file-of-any-size", "ACC-FILE")
async def _file_of_any_size(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A batch file over the limit is accepted with 204 and discarded."""
    limit_bytes = engine.profile.account_updater.file_limit_bytes
    is_long = isinstance(request.body, bytes) and len(request.body) > limit_bytes
    if request.method == "PUT" and is_long:
        return Response(204)
    return await submit(request)


@fault("one-job-at-a-time", "ACC-SPLIT")
async def _one_job_at_a_time(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A second job is refused while the first one waits for its file."""
    if request.method != "POST" or request.path != "/account-updater/jobs":
        return await submit(request)
    caller = engine.identify(request)
    if caller is not None and caller.tenant.id in engine.notes:
        return Problem(409, "A job is under way.").response()
    response = await submit(request)
    if response.ok and caller is not None:
        engine.notes[caller.tenant.id] = "job"
    return response


# --- quotas ---------------------------------------------------------------------------------------


@fault_of_quotas("quota-of-ten", "QUO-TENANT")
def _quota_of_ten(_: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tenant's quotas do not start at the defaults: both token limits are 10."""
    return {"Tokenize Limit": 10, "Detokenize Limit": 10}


@fault_of_quotas("own-quota-ignored", "QUO-LOG")
def _own_quota_ignored(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Quotas that the operator sets for one tenant have no effect: the defaults apply."""
    return {name: value for name, value in DEFAULT_QUOTAS.items() if quotas[name] != value}


@fault_of_quotas("tokenize-one-more", "QUO-TOKENIZE")
def _tokenize_one_more(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """One token more than the Tokenize Limit may be created."""
    return {"Tokenize Limit": quotas["Tokenize Limit"] + 1}


@fault_of_quotas("tokenize-one-less", "QUO-TOKENIZE")
def _tokenize_one_less(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request with as many tokens as the Tokenize Limit says is refused."""
    return {"Tokenize Limit": quotas["Tokenize Limit"] - 1}


@fault_of_quotas("detokenize-one-more", "QUO-DETOKENIZE")
def _detokenize_one_more(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """One token more than the Detokenize Limit may be read."""
    return {"Detokenize Limit": quotas["Detokenize Limit"] + 1}


@fault_of_quotas("detokenize-unlimited", "QUO-DETOKENIZE")
def _detokenize_unlimited(_: Mapping[str, Any]) -> Mapping[str, Any]:
    """Any number of tokens may be read in one request."""
    return {"Detokenize Limit": 1_000_000}


def _retained(clause_id: str, name: str, what: str) -> None:
    """Register the faults that keep a thing for twice, and for half, of its retention."""

    def longer(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: 2 * quotas[name]}

    def shorter(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: quotas[name] // 2}

    short = clause_id.removeprefix("QUO-").lower()
    longer.__doc__ = f"A {what} is readable for twice its retention."
    shorter.__doc__ = f"A {what} is gone after half its retention."
    fault_of_quotas(f"{short}-kept-too-long", clause_id)(longer)
    fault_of_quotas(f"{short}-lost-early", clause_id)(shorter)


_retained("QUO-CVC", "CVC Retention", "cvc")
_retained("QUO-INTENT", "Token Intent Retention", "token intent")
_retained("QUO-LOG", "Log Retention", "log entry")


async def _with_twice(
    engine: FaultyEngine, request: Request, submit: Submit, name: str
) -> Response:
    """Answer a request while its tenant has twice a retention."""
    caller = engine.identify(request)
    if caller is None:
        return await submit(request)
    retained_ns = caller.tenant.quotas[name]
    engine.set_quota(caller.tenant, name, 2 * retained_ns)
    try:
        return await submit(request)
    finally:
        engine.set_quota(caller.tenant, name, retained_ns)


@fault("intent-converted-late", "QUO-INTENT")
async def _intent_converted_late(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """A token intent can be converted for twice its retention, though it is readable for one."""
    caller, path = engine.identify(request), request.path
    if caller is None or not path.startswith("/token-intents"):
        return await submit(request)
    if request.method != "POST":
        made_ns = int(engine.notes.get(path, "0"))
        is_over = made_ns + caller.tenant.quotas["Token Intent Retention"] <= engine.clock.now_ns
        return Problem(404, "No such intent.").response() if is_over else await submit(request)
    response = await _with_twice(engine, request, submit, "Token Intent Retention")
    if response.ok and isinstance(response.body, dict):
        engine.notes[f"{path}/{response.body['id']}"] = str(engine.clock.now_ns)
    return response


def _logs_for_longer(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"Log Retention": 2 * quotas["Log Retention"]}


def _only_reads_for_longer(engine: FaultyEngine, request: Request, response: Response) -> None:
    """Leave out what is older than the retention that was set, unless it is a read."""
    caller, body = engine.identify(request), response.body
    if caller is None or _path_of(request) != "/logs" or not isinstance(body, dict):
        return
    retained_ns = caller.tenant.quotas["Log Retention"] // 2
    oldest = timestamp(engine.clock.wall_ns - retained_ns)
    body["data"] = [
        entry
        for entry in body["data"]
        if entry["created_at"] > oldest or entry["operation"] == "token:read"
    ]


FAULTS["reads-logged-for-longer"] = Fault(
    "reads-logged-for-longer",
    "QUO-LOG",
    "A log entry of a read is readable for twice its retention.",
    quotas=_logs_for_longer,
    around=around_responses(_only_reads_for_longer),
)
