"""An extension takes as few source files as CONTRIBUTING says: each one is made here, in a copy.

Each extension is a list of edits and a program that uses it. The program runs on the edited copy;
the number of edited files is held to a bound.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

import pytest

_PACKAGES = ("engine", "simulator", "conformance")


@dataclass(frozen=True)
class _Edit:
    """Text that comes before `anchor` in a file; at its end without one, and the file may be new.

    A text of several lines takes the indentation of the anchor's line.
    """

    file: str
    text: str
    anchor: str = ""

    def apply(self, root: Path) -> None:
        path = root / self.file
        old = path.read_text() if path.exists() else ""
        text = self.text
        if text.startswith("\n"):
            start = old.find(self.anchor)
            margin = start - old.rfind("\n", 0, start) - 1 if self.anchor else 0
            text = indent(dedent(text).lstrip("\n"), " " * margin).lstrip(" ") + " " * margin
        assert self.anchor in old, f"{self.file} has no {self.anchor!r}"
        path.write_text(
            old.replace(self.anchor, text + self.anchor, 1) if self.anchor else old + text
        )


@dataclass(frozen=True)
class _Extension:
    """files: how many source files of the packages it may take."""

    files: int
    edits: list[_Edit]
    proof: str


_ALGORITHM = _Extension(
    3,
    [
        _Edit("engine/profile.py", '"spaced", ', '"gcra"]'),
        _Edit(
            "engine/limits/counters.py",
            """
            class Spaced(CounterState):
                __slots__ = ("gap_ns", "ready_ns")
                refills = True

                def __init__(self, settings: CounterSettings) -> None:
                    self.gap_ns = -(-settings.window_ns // settings.limit_requests)
                    self.ready_ns = 0

                def charge(self, t_ns: int) -> int:
                    self.ready_ns = t_ns + self.gap_ns
                    return self.ready_ns

                def remaining(self, now_ns: int) -> int:
                    return 1 if now_ns >= self.ready_ns else 0

                def idle_ns(self) -> int:
                    return self.ready_ns


            """,
            "ALGORITHMS: Final[dict",
        ),
        _Edit("engine/limits/counters.py", '"spaced": Spaced, ', '"sliding-log": SlidingLog,'),
        _Edit(
            "tests/oracles/limits.py",
            """
            def spaced(history: History, t: int, rule: Rule, profile: LimitsProfile) -> bool:
                return not history or (t - history[-1]) * rule.limit_requests >= rule.window_ns


            """,
            "def sliding_log(",
        ),
        _Edit("tests/oracles/limits.py", '"spaced": spaced, ', '"sliding-log": sliding_log,'),
    ],
    """
    import random
    import simulator
    from engine.limits import LimitTable, Limiter, Subject
    from engine.profile import LimitsProfile
    from tests.oracles.limits import Oracle

    profile = LimitsProfile(algorithm="spaced")
    tables = {"Default": LimitTable.default()}
    limiter, oracle = Limiter(tables, profile), Oracle(tables, profile)
    rng, now_ns, seen = random.Random(7), 0, set()
    for _ in range(2_000):
        now_ns += rng.randrange(40_000_000)
        subject = Subject("GET", "/tokens", f"192.0.2.{rng.randrange(3)}")
        decision, verdict = limiter.decide(now_ns, subject), oracle.decide(now_ns, subject)
        assert (decision.outcome, decision.rule, decision.wait_ns) == (
            verdict.outcome, verdict.rule, verdict.wait_ns), (decision, verdict)
        seen.add(decision.outcome)
    assert len(seen) > 1, seen
    minute = everyday("choices.limits.algorithm = 'spaced'")
    runs = [simulator.run(minute, fidelity=fidelity) for fidelity in FIDELITIES]
    assert len({run.summary["decisions_sha256"] for run in runs}) == 1
    """,
)

_COUNTER = _Extension(
    1,
    [
        _Edit("engine/limits/table.py", '"application", ', '"host+ip"]'),
        _Edit(
            "engine/limits/table.py",
            """
            "application": CounterKind("application", "application", (("application_id",),)),
            """,
            '"host+ip": CounterKind(',
        ),
        _Edit("engine/limits/table.py", '"application_id", ', '"host_id"]'),
    ],
    """
    import subprocess, sys
    from pathlib import Path
    import simulator
    from conformance.target import Target
    from conformance.messages.exchange import HttpRequest
    from conformance.wire.pace import Pacer
    from engine import InputError, Limiter, LimitTable, Subject
    from engine.files import parse_toml
    from engine.profile import LimitsProfile

    own = [sys.executable, "-m", "engine", "limits", "--toml"]
    table = subprocess.run(own, check=True, capture_output=True, text=True).stdout
    table += '''
    [[rule]]
    id = "BY-APPLICATION"
    match = { resource = ["ANY /*"] }
    counter = "application"
    rate = "300/1m"
    action = "throttle"
    '''
    Path("limits.toml").write_text(table)
    minute = everyday("limits = 'limits.toml'")
    runs = [simulator.run(minute, fidelity=fidelity) for fidelity in FIDELITIES]
    assert runs[0].clauses.loc["BY-APPLICATION", "refused"] > 0, runs[0].clauses
    assert len({run.summary["decisions_sha256"] for run in runs}) == 1

    # A replay of a run's own rows decides as the run did, compiled too.
    from simulator.scenario import loads
    from simulator.traffic.population import populate
    rows = runs[0].requests
    keys = {key.label: key for key in populate(loads(minute), runs[0].summary["seed"]).keys}
    for name in ("tenant_kind", "application_kind", "legacy"):
        rows[name] = [str(getattr(keys[label], name)).lower() for label in rows["key"]]
    fields = "method path tenant application tenant_kind application_kind legacy".split()
    named = "".join(f"{name} = '{name}'" + chr(10) for name in fields)
    Path("map.toml").write_text(
        "time = { field = 't_ns', unit = 'ns' }\\nkey = 'key'\\naddress = 'ip'\\n" + named)
    for fidelity in ("limits", "compiled"):
        again = simulator.replay(rows, limits="limits.toml", map="map.toml", fidelity=fidelity)
        assert list(again.requests["outcome"]) == list(rows["outcome"]), fidelity
    rates = {"rules.BY-APPLICATION.rate": ["300/1m", "1/1m"]}
    swept = simulator.sweep(minute, rates, out="swept", fidelity="limits")
    assert swept["refused_share"].is_monotonic_increasing, swept
    assert swept["refused_share"].nunique() == 2, swept

    # Who identifies a caller and leaves the application out is told so.
    try:
        Limiter({"Default": LimitTable.from_toml("limits.toml")}, LimitsProfile()).decide(
            0, Subject("GET", "/tokens", "192.0.2.1", key_id="k"))
    except InputError as error:
        assert "BY-APPLICATION counts by application_id" in str(error), error
    else:
        raise AssertionError("a request without its application was decided")

    # Two public keys of one application share its counter in the plan of a conformance run.
    loose = LimitTable((LimitTable.from_toml("limits.toml")["BY-APPLICATION"],))
    text = 'base_url = "https://vault.example.com"\\n[[tenants]]\\nname = "acme"\\n'
    text += '[[keys]]\\nrole = "public"\\nvalue = "one"\\ntenant = "acme"\\n'
    text += '[[keys]]\\nrole = "public"\\nvalue = "two"\\ntenant = "acme"\\n'
    pacer = Pacer(Target.from_document(parse_toml(text, "target.toml")), loose)
    labels = [f"public.{n % 2 + 1}" for n in range(300)]
    asked = [HttpRequest(method="POST", path="/tokenize", key=label) for label in labels]
    assert [pacer.admit(0, ask, [None])[1] for ask in asked].count(0) == 270
    """,
)

_TYPE = _Extension(
    2,
    [
        _Edit(
            "engine/tokens/accounts.py",
            '''
            """Bank accounts: `data` is an object of one field, `iban`."""

            ACCOUNT_EXAMPLE = {"iban": "XX00TEST0001"}
            ACCOUNT_MASK_SCHEMA = {"type": "object", "properties": {"iban": {"type": "string"}}}
            _IBAN = {"type": "string", "pattern": "^[A-Z]{2}[0-9]{2}[A-Z0-9]{4,30}$"}


            def read_account(given, rules, faults, at, field, cvc_optional):
                if type(given) is not dict or type(given.get("iban")) is not str or len(given) > 1:
                    faults.at(at, f"/{field}/iban", "must be an IBAN", "TOK-TYPES")
                    return None
                return dict(given), None


            def account_mask(data):
                return {"iban": "X" * (len(data["iban"]) - 4) + data["iban"][-4:]}


            def account_schema(kind, tokens):
                return {"type": "object", "properties": {"iban": _IBAN}, "required": ["iban"]}
            ''',
        ),
        _Edit(
            "engine/tokens/rules.py",
            "import engine.tokens.accounts as account\n",
            "from engine.tokens.strict_json import",
        ),
        _Edit(
            "engine/tokens/rules.py",
            """
            "account": StructuredType(
                read=account.read_account,
                mask=account.account_mask,
                identity="iban",
                expression="{{ data.iban }}",
                schema=account.account_schema,
                mask_schema=account.ACCOUNT_MASK_SCHEMA,
                example=account.ACCOUNT_EXAMPLE,
            ),
            """,
            '"card": StructuredType(',
        ),
    ],
    """
    import json
    from engine import Engine, Request
    from engine.http.openapi import document

    engine = Engine(seed=7)
    app = engine.create_application(
        engine.create_tenant("Acme"), "shop", grants=[("/", {"token:create", "token:read"})])
    key = engine.create_key(app)

    def ask(method, path, body=None):
        return engine.handle(Request(method, path, key=key, ip="203.0.113.7", body=body))

    made = ask("POST", "/tokenize", {"type": "account", "data": {"iban": "GB33BUKB20201555555555"}})
    assert made.status == 200, made.body
    record = ask("GET", f"/tokens/{made.body['id']}").body
    assert record["type"] == "account" and "GB33" not in json.dumps(record), record
    refused = ask("POST", "/tokenize", {"type": "account", "data": {"iban": 33}})
    assert refused.status == 400 and list(refused.body["errors"]) == ["/data/iban"], refused.body
    assert "AccountMask" in json.dumps(document('full', engine.profile))
    """,
)

_CHECK = _Extension(
    2,
    [
        _Edit(
            "conformance/checks/concurrency.py",
            """
            @check("arrays.twice", "TOK-ARRAY", accepts="an identifier for each", requests=1)
            async def twice(ctx: CheckContext) -> list[Finding]:
                '''Two strings have two identifiers.'''
                key = await ctx.ready_key("private_prod")
                exchange = await ctx.client.tokenize(["Ada", "Grace"], key)
                are_two, rule = len(set(exchange.json)) == 2, "two strings must have two ids"
                return [ctx.judges("TOK-ARRAY", are_two, "two identifiers", rule, exchange)]
            """,
        ),
        _Edit(
            "conformance/faults/bodies.py",
            """
            @fault_of_answers("array-of-one", "TOK-ARRAY")
            def _array_of_one(_: Json, answer: Json) -> Json:
                '''Every identifier of an array is its first one.'''
                return [answer[0]] * len(answer) if isinstance(answer, list) and answer else answer
            """,
        ),
    ],
    """
    from conformance.faults.trial import try_fault

    assert "arrays.twice" in try_fault("array-of-one").killers, "not caught"
    """,
)

_CHART = _Extension(
    2,
    [
        _Edit(
            "simulator/views/charts.py",
            '"again": lambda found: attempts(found), ',
            '"goodput": goodput',
        ),
        _Edit(
            "simulator/views/charts.py",
            """
            def again(self) -> alt.Chart:
                return self._stacked(attempts(self._findings("attempts", _BINS)))

            """,
            "def waits(self)",
        ),
        _Edit(
            "simulator/views/page/report.html",
            '<p id="new">{{ attempts.again }}</p>',
            '<div class="chart slim">{{ attempts.goodput }}',
        ),
    ],
    """
    from pathlib import Path
    import simulator

    run = simulator.run(everyday(""), fidelity="limits", out="out")
    assert "<svg" in Path("out/report.html").read_text().partition('<p id="new">')[2][:9]
    assert run.plots.again().to_dict()["data"]
    """,
)

_ERROR_BODY = _Extension(
    2,
    [
        _Edit(
            "engine/messages.py",
            """body["code"] = f"E{self.status}"\n        """,
            "if self.errors:",
        ),
        _Edit(
            "engine/http/openapi/documents.py",
            """ "code": {"type": "string", "pattern": "^E[45]"},\n            """,
            """"title": {"type": "string"},""",
        ),
    ],
    """
    from engine import Engine, Profile, Request
    from engine.http.openapi import document

    answer = Engine(seed=7).handle(Request("GET", "/tokens", ip="192.0.2.1"))
    assert answer.body["code"] == "E401", answer.body
    problem = document("full", Profile())["components"]["schemas"]["Problem"]
    assert "code" in problem["properties"]
    """,
)

_PRELUDE = """
from simulator.scenario import dump, load

FIDELITIES = ("engine", "limits")  # "compiled" too, where a minute of compiling is no matter

def everyday(more):
    text = dump(load("everyday")).replace('duration = "10m"', 'duration = "1m"')
    return more + chr(10) + text
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "extension",
    [
        pytest.param(_ALGORITHM, id="algorithm"),
        pytest.param(_COUNTER, id="limit that counts something new"),
        pytest.param(_TYPE, id="structured token type"),
        pytest.param(_CHECK, id="check with its fault"),
        pytest.param(_CHART, id="chart in the report and the notebook"),
        pytest.param(_ERROR_BODY, id="error body"),
    ],
)
def test_an_extension_takes_few_files(
    extension: _Extension, repository: Path, tmp_path: Path
) -> None:
    """The files that CONTRIBUTING names are all that an extension needs."""
    for package in (*_PACKAGES, "tests/oracles"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repository / package, tmp_path / package, ignore=ignored)
    for edit in extension.edits:
        edit.apply(tmp_path)
    assert len({edit.file for edit in extension.edits}) <= extension.files
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + dedent(extension.proof)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
