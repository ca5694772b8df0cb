"""Coverage: every limit rule, action, quota and bound fires at least once, or says why it cannot.

The lines come from the limit table (a line a counter and a way to act) and from the clause registry
(quotas, proxies, reactors, account updater). Each is triggered by a small scenario made from the
rule's row, so that a row added to the table is covered without a change here.

Bounds that are no rate limits (quotas, timeouts, sizes, cold starts, files) have a probe each. A
probe triggers one clause in virtual time, through a small scenario or directly in an engine, and
returns the evidence as a sentence, or None when the clause did not hold.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from engine import Engine, LimitTable, ManualClock, Request
from engine.clauses import CLAUSES, clause
from engine.identity import PERMISSIONS
from engine.limits import Rule
from engine.messages import Outcome
from engine.profile import SECOND_NS
from simulator.arguments import instance, optional, takes
from simulator.rows import Result
from simulator.scenario import loads
from simulator.study.runs import run

COVERED: Final = ("ERR-", "LIM-", "QUO-", "PRX-", "RCT-", "ACC-")
"""Prefixes of the clauses that the simulator covers."""

Way: TypeAlias = Literal["refuses", "blocks", "delays"]

_OUTCOMES: Final[dict[Way, Outcome]] = {
    "refuses": "refused",
    "blocks": "blocked",
    "delays": "delayed",
}
_CLIENTS: Final = 4


@dataclass(frozen=True, slots=True)
class CoverageLine:
    """One thing to trigger. how: the evidence, or why it cannot fire. masked: it cannot."""

    clause: str
    what: str
    fired: bool
    how: str
    masked: bool = False


@takes(table=optional(instance("a LimitTable", LimitTable)))
def coverage(table: LimitTable | None = None) -> list[CoverageLine]:
    """Trigger every rule of a limit table (default: the specification's), quota and bound."""
    table = LimitTable.default() if table is None else table
    lines = [line for rule in table for line in _rule_lines(rule)]
    lines += _about_all_rules(lines)
    for item in CLAUSES:
        if not item.id.startswith(COVERED) or any(line.clause == item.id for line in lines):
            continue
        what, probe = BOUNDS.get(item.id, ("fires", None))
        evidence = None if probe is None else probe()
        otherwise = "no probe fires it" if probe is None else "it did not fire"
        lines.append(CoverageLine(item.id, what, evidence is not None, evidence or otherwise))
    order = {item.id: place for place, item in enumerate(CLAUSES)}
    return sorted(lines, key=lambda line: order.get(line.clause, len(order)))


def _about_all_rules(lines: list[CoverageLine]) -> Iterator[CoverageLine]:
    """Yield the lines of the clauses that are about every row."""
    for clause_id, way in (
        ("LIM-THROTTLE", "refuses"),
        ("LIM-BLOCK", "blocks"),
        ("LIM-THROTTLE", "delays"),
    ):
        fired = [line.clause for line in lines if line.fired and line.what.endswith(way)]
        how = f"{len(fired)} counters, {fired[0]} first" if fired else "nothing fired"
        yield CoverageLine(clause_id, way, bool(fired), how)


def _rule_lines(rule: Rule) -> Iterator[CoverageLine]:
    for name in rule.counter_names:
        for way, outcome in _OUTCOMES.items():
            result = run(_scenario(rule, name, way), fidelity="limits")
            count, first_s = _fired(result, name, outcome)
            what = f"{name.removeprefix(rule.id).lstrip('.')} {way}".strip()
            masked = None if count else _masked(rule, name)
            how = f"{count} of {result.summary['rows']}"
            how += f", the first at {first_s:g} s" if count else ""
            yield CoverageLine(rule.id, what, bool(count), masked or how, masked is not None)


def _masked(rule: Rule, name: str) -> str | None:
    """Return why a counter can never be the one that is reported; None where it can."""
    if rule.seed_section is None or name == rule.id or not name.endswith(".ip"):
        return None
    return clause(rule.id).masked


def _fired(result: Result, rule: str, outcome: Outcome) -> tuple[int, float]:
    frame = result.requests
    rows = frame[(frame["rule"].astype(object) == rule) & (frame["outcome"] == outcome)]
    return len(rows), float(rows["t_ns"].iloc[0]) / 1e9 if len(rows) else math.nan


def _scenario(rule: Rule, counter: str, way: Way) -> str:
    """Return a scenario in which one counter of one rule is exceeded, and as few others as can be.

    Half as much again as the rate allows, evenly over one window. A counter by key is asked from
    several addresses, one by address with several keys.
    """
    by_key = counter.endswith(".key") or rule.counter == "key"
    by_ip = counter.endswith(".ip") or rule.counter == "ip"
    limit, window_ns = rule.rate
    clients = _CLIENTS if by_key or by_ip else 1
    requests_each = -(-3 * limit // (2 * clients))
    match = rule.match
    keyed = not (rule.counter == "ip" or match.proxy is not None)
    action = (
        f'action = "block"\nblock = "{rule.block_ns or 1_000_000_000}ns"'
        if way == "blocks"
        else 'action = "throttle"'
    )
    parts = [
        f'name = "coverage"\nduration = "{window_ns}ns"',
        f"[rules.{rule.id}]\n{action}\nshadow = false",
        f'[choices.limits]\nthrottle = "{"delay" if way == "delays" else "refuse"}"',
        f'[[tenants]]\nname = "t"\nkind = "{match.tenant or "production"}"',
        f'[[applications]]\nname = "a"\ntenant = "t"\nkind = "{match.application or "private"}"',
        f"{'legacy_keys' if match.legacy else 'keys'} = {1 if by_key or not by_ip else clients}",
        '[[addresses]]\nname = "one"',
        f'[[clients]]\nname = "c"\ncount = {clients}\nloop = "open"',
        f'arrivals = {{ kind = "constant", rate = "{requests_each}/{window_ns}ns" }}',
        f"mix = [{{ {_asked(rule)} }}]",
    ]
    if keyed:
        parts.append('application = "a"')
    if by_ip:
        parts.append('addresses = "one"')
    if match.proxy is not None:
        parts.append(_PROXY)
    return "\n".join(parts)


_PROXY: Final = """
[[proxies]]
name = "p"
tenant = "t"
host = "pay.example.com"
destination = { kind = "constant", value = "10ms" }
"""


def _asked(rule: Rule) -> str:
    """Return an entry of a mix to which the rule applies."""
    if rule.match.proxy is not None:
        return f'request = "GET /proxy/pay", proxy = "p", via = "{rule.match.proxy}"'
    if rule.match.resource:
        method, _, path = rule.match.resource[0].partition(" ")
        method = "GET" if method == "ANY" else method
        return f'request = "{method} {path.replace("*", "jobs")}"'
    if rule.match.application == "public":
        return 'request = "POST /tokenize"'
    return 'request = "GET /tenants/self"'


_HOUR_NS: Final = 3_600 * SECOND_NS
_CARD: Final = {"number": "4242424242424242", "expiration_month": 12, "expiration_year": 2030}


class _Bench:
    """An engine on a manual clock with one private key that may do everything."""

    def __init__(self, **quotas: int) -> None:
        self.engine = Engine(clock=ManualClock(), seed=7)
        self.tenant = self.engine.create_tenant("bench", quotas=quotas)
        app = self.engine.create_application(
            self.tenant, "bench", "private", grants=[("/", PERMISSIONS)]
        )
        self._key = self.engine.create_key(app)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:  # noqa: ANN401 # reason: JSON
        answer = self.engine.handle(Request(method, path, key=self._key, ip="192.0.2.1", body=body))
        return answer.status, answer.body

    def ask_around(self, later_ns: int, *asked: Any) -> list[tuple[int, Any]]:  # noqa: ANN401 # reason: as above
        """Ask the same just before an instant, and at it."""
        clock = self.engine.clock
        assert isinstance(clock, ManualClock), "a bench has a manual clock"
        answers = []
        for wait_ns in (later_ns - 1, 1):
            clock.advance_ns(wait_ns)
            answers.append(self.ask(*asked))
        return answers


def _scene(text: str, *, head: str = "", tenant: str = "", folder: Path | None = None) -> Result:
    """Run ten seconds of a scenario of one tenant and one application, in the whole engine."""
    head = f'name = "coverage"\nduration = "10s"\n{head}[[tenants]]\nname = "t"\n{tenant}\n'
    app = '[[applications]]\nname = "a"\ntenant = "t"\n'
    return run(loads(head + app + text, folder=folder), fidelity="engine")


def _client(mix: str, *, rate: str = "1/1s") -> str:
    return (
        '[[clients]]\nname = "c"\napplication = "a"\nloop = "open"\n'
        f'arrivals = {{ kind = "constant", rate = "{rate}" }}\nmix = [{{ {mix} }}]\n'
    )


def _statuses(result: Result) -> dict[str, int]:
    counts: dict[str, int] = result.summary["totals"]["statuses"]
    return counts


def _tokenize_limit() -> str | None:
    bench = _Bench()
    fine, _ = bench.ask("POST", "/tokenize", [str(n) for n in range(5)])
    over, _ = bench.ask("POST", "/tokenize", [str(n) for n in range(6)])
    return f"5 tokens {fine}, 6 tokens {over}" if fine == 200 and over >= 400 else None


def _detokenize_limit() -> str | None:
    bench = _Bench()
    _, ids = bench.ask("POST", "/tokenize", ["a"])
    fine, _ = bench.ask("POST", "/detokenize", [f"{{{{ {ids[0]} }}}}"] * 5)
    over, _ = bench.ask("POST", "/detokenize", [f"{{{{ {ids[0]} }}}}"] * 6)
    return f"5 expressions {fine}, 6 expressions {over}" if fine == 200 and over >= 400 else None


def _quota_of_a_tenant() -> str | None:
    bench = _Bench(**{"Tokenize Limit": 2})
    over, _ = bench.ask("POST", "/tokenize", ["a", "b", "c"])
    bench.engine.set_quota(bench.tenant, "Tokenize Limit", 3)
    fine, _ = bench.ask("POST", "/tokenize", ["a", "b", "c"])
    fired = (over, fine) == (400, 200)
    return f"3 tokens {over}, after the operator's change {fine}" if fired else None


def _rate_limit_quota() -> str | None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        strict = LimitTable((LimitTable.default()["LIM-CREATE"],))
        text = strict.replace_rule("LIM-CREATE", rate="3/10s").to_toml()
        (folder / "strict.toml").write_text(text, "utf-8")
        result = _scene(
            _client('request = "POST /tokenize"'),
            head='[limit_tables]\nstrict = "strict.toml"\n',
            tenant='quotas = { "Rate Limit" = "strict" }',
            folder=folder,
        )
    refused = result.summary["totals"]["refused"]
    return f"{refused} of 10 refused by the table `strict`" if refused == 7 else None


def _log_retention() -> str | None:
    bench = _Bench()
    bench.ask("POST", "/tokenize", ["a"])
    answers = bench.ask_around(24 * _HOUR_NS, "GET", "/logs")
    before, after = (len(body["data"]) for _, body in answers)
    return f"{before} entries until 24 h, {after} then" if after < before else None


def _cvc_retention() -> str | None:
    bench = _Bench()
    _, record = bench.ask("POST", "/tokens", {"type": "card", "data": {**_CARD, "cvc": "123"}})
    answers = bench.ask_around(_HOUR_NS, "POST", "/detokenize", [f"{{{{ {record['id']} }}}}"])
    fired = ["cvc" in body[0] for _, body in answers] == [True, False]
    return "the cvc is readable until 1 h, and gone then" if fired else None


def _intent_retention() -> str | None:
    bench = _Bench()
    _, intent = bench.ask("POST", "/token-intents", {"type": "token", "data": "a"})
    answers = bench.ask_around(24 * _HOUR_NS, "GET", f"/token-intents/{intent['id']}")
    before, after = (status for status, _ in answers)
    return f"{before} until 24 h, {after} then" if (before, after) == (200, 404) else None


_SLOW_PROXY: Final = (
    '[[proxies]]\nname = "p"\ntenant = "t"\ndestination = { kind = "constant", value = "26s" }\n'
)


def _destination_timeout() -> str | None:
    return _times_out(_SLOW_PROXY + _client('request = "POST /proxy/pay", proxy = "p"'), 408, 25)


def _times_out(scene: str, status: int, after_s: int) -> str | None:
    frame = _scene(scene).requests
    fired = (frame["status"] == status) & (frame["latency_ns"] == after_s * SECOND_NS)
    return f"{fired.sum()} answered {status} after {after_s} s" if fired.all() else None


def _reactor(service: str) -> str:
    return (
        f'[[reactors]]\nname = "r"\ntenant = "t"\n'
        f'service = {{ kind = "constant", value = "{service}" }}\n'
    )


_REACT: Final = 'request = "POST /reactors/{id}/react", reactor = "r"'


def _reactor_timeout() -> str | None:
    return _times_out(_reactor("31s") + _client(_REACT), 504, 30)


def _cold_starts() -> str | None:
    frame = _scene(_reactor("1500ms") + _client(_REACT)).requests
    cold = int((frame["latency_ns"] == 2_500_000_000).sum())
    hot = int((frame["latency_ns"] == 1_500_000_000).sum())
    return f"{hot} hot, {cold} from a cold start" if hot and cold else None


def _payload() -> str | None:
    result = _scene(_reactor("10ms") + _client(_REACT + ', size = "1100000"'))
    count = _statuses(result).get("413", 0)
    return f"{count} answered 413" if count == result.summary["rows"] else None


def _code() -> str | None:
    bench = _Bench()
    fine, _ = bench.ask("POST", "/reactors", {"name": "r", "code": "x" * 50_000})
    over, _ = bench.ask("POST", "/reactors", {"name": "r", "code": "x" * 50_001})
    return (
        f"50,000 characters are answered {fine}, one more {over}"
        if (fine, over) == (201, 400)
        else None
    )


def _file_size() -> str | None:
    mix = 'request = "POST /account-updater/jobs", size = "30000001"'
    statuses = _statuses(_scene(_client(mix, rate="1/10s")))
    return (
        "an upload of 30,000,001 bytes is answered 413"
        if statuses == {"201": 1, "413": 1}
        else None
    )


def _split() -> str | None:
    mix = 'request = "POST /account-updater/jobs", size = "65000000", split = true'
    statuses = _statuses(_scene(_client(mix, rate="1/10s")))
    return "65 MB became three files and three jobs" if statuses == {"201": 3, "204": 3} else None


def _rate_limited() -> str | None:
    result = _scene(_client('request = "GET /account-updater/jobs"', rate="2/1s"))
    count = _statuses(result).get("429", 0)
    return f"{count} answered 429" if count == result.summary["totals"]["refused"] > 0 else None


def _lowest() -> str | None:
    client = _client('request = "POST /tokens"', rate="25/1s")
    result = _scene(client, tenant='kind = "test"')
    admitted = result.summary["totals"]["admitted"]
    return f"{admitted} of 250 POST /tokens on a test tenant in 10 s" if admitted == 50 else None


BOUNDS: Final[dict[str, tuple[str, Callable[[], str | None]]]] = {
    "ERR-429": ("answers", _rate_limited),
    "ERR-408": ("answers", _destination_timeout),
    "LIM-LOWEST": ("the lowest binds", _lowest),
    "QUO-TENANT": ("changes", _quota_of_a_tenant),
    "QUO-RATE": ("names a table", _rate_limit_quota),
    "QUO-LOG": ("expires", _log_retention),
    "QUO-TOKENIZE": ("refuses", _tokenize_limit),
    "QUO-DETOKENIZE": ("refuses", _detokenize_limit),
    "QUO-CVC": ("expires", _cvc_retention),
    "QUO-INTENT": ("expires", _intent_retention),
    "PRX-TIMEOUT": ("times out", _destination_timeout),
    "RCT-CODE": ("refuses", _code),
    "RCT-PAYLOAD": ("refuses", _payload),
    "RCT-HOT": ("starts cold", _cold_starts),
    "RCT-TIMEOUT": ("times out", _reactor_timeout),
    "ACC-FILE": ("refuses", _file_size),
    "ACC-SPLIT": ("splits", _split),
}
"""Clause id → what it does when it fires, and its probe."""
