"""What notebooks get and what compiled runs play, as text.

Fits of logs whose truth is known or drawn, charts, pictures of explorers, traces; and of drawn
scenarios, how many requests they ask for and the arrays that are made of them.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

import simulator
from engine.errors import InputError
from engine.files import parse_toml
from simulator.logs import LogMap
from simulator.play.engine_backend import Known, batch_file, body_of
from simulator.scenario import Scenario, builtin, dump, limits_of, load, loads
from simulator.study.fit.judge import varied
from simulator.study.run_size import at_pace, expected_requests, size_warning, stated_pace
from tests.digests._commands import same_everywhere
from tests.drawn import Seeded, outside_scenario_text, scenario_text
from tests.simulator.fit.holdout import KINDS, log_of, map_of

__all__ = ["STUDIES"]

_FITTED: Final = (*KINDS, "retries judged", "nat judged")
_FITTED_DRAWN: Final = range(24)
_EXPLORED: Final = ("bulk-import", "management-loop")
_PLOTTED: Final = ("shared-office", "several-nodes", "cold-starts", "slow-destination")
_CHARTS: Final = ("timeline", "attempts", "goodput", "shut_out", "clauses", "waits", "latencies")


def _fit_text(name: str) -> str:
    """Return a fit as its scenario file, its tables and what it says that it lost."""
    kind, _, judged = name.partition(" ")
    rows, log_map = log_of(kind, 1)
    more: dict[str, Any] = {"as_kind": "public"} if log_map is None else {"map": log_map}
    found = simulator.fit(rows, **more, judged=bool(judged), runs=9 if judged else None)
    parts = [found.text, repr(found), found.groups.to_csv(), found.parameters.to_csv()]
    parts += [found.comparison.to_csv(), *found.lost, found._repr_html_()]
    if judged:
        parts += [_of_chart(found.plots.rate()), _of_chart(found.plots.comparison())]
    return same_everywhere("\n".join(parts))


def _drawn_fit_text(seed: int) -> str:
    """Return the fit of a minute of a drawn scenario; each seed tells the fit other things."""
    text = (scenario_text, outside_scenario_text)[seed % 3 == 2](Seeded(seed))
    scenario = loads(text.replace('duration = "8s"', 'duration = "60s"'))
    rows = simulator.run(scenario, fidelity="compiled", seed=seed, check=False).requests
    more: dict[str, Any] = {"map": map_of(scenario), "judged": seed < 4}
    if seed % 2:
        told = ["client", "attempt", "outcome", "rule", "tenant" if seed % 4 == 3 else "status"]
        rows = rows.drop(columns=told)
    if seed % 4 == 3:
        more = {"as_kind": ("private", "public")[seed % 8 == 3], "tenant": "test", "judged": False}
    try:
        found = simulator.fit(rows, runs=3 if more["judged"] else None, **more)
    except InputError as fault:
        return str(fault)
    parts = [found.text, repr(found), found.groups.to_csv(), found.parameters.to_csv()]
    return same_everywhere("\n".join([*parts, *found.lost, found._repr_html_()]))


_RETRIED: Final = """
duration = "4m"
tenants = [{ name = "t" }]
applications = [{ name = "a", tenant = "t", kind = "KIND" }]
[rules.LIM-PUBLIC]
rate = "30/20s"
block = "3s"
[rules.LIM-MANAGEMENT]
rate = "9/5s"
block = "7s"
[[clients]]
name = "c"
count = 3
application = "a"
"""
_LOOPS: Final = (
    'think = { kind = "exponential", mean = "700ms" }',
    'loop = "open"\narrivals = { kind = "poisson", rate = "2/1s" }',
)
_OWN: Final = "honour_retry_after = false"
_POLICIES: Final = (
    f'{{ kind = "fixed", delay = "250ms", attempts = 40, {_OWN} }}',
    '{ kind = "fixed", delay = "1500ms", attempts = 3 }',
    f'{{ kind = "exponential", base = "200ms", cap = "5s", attempts = 6, {_OWN} }}',
    '{ kind = "exponential", base = "6s", cap = "60s", attempts = 4 }',
    f'{{ kind = "full-jitter", base = "300ms", cap = "4s", attempts = 9, {_OWN} }}',
    '{ kind = "full-jitter", base = "9s", cap = "40s", attempts = 5 }',
    f'{{ kind = "decorrelated-jitter", base = "400ms", cap = "6s", attempts = 7, {_OWN} }}',
)


def _retries_text(number: int) -> str:
    """Return fits of clients with one retry policy, of logs that tell ever less."""
    policy, loop = _POLICIES[number % len(_POLICIES)], _LOOPS[number // len(_POLICIES)]
    kind = ("public", "management")[number % 2]
    scenario = loads(f"{_RETRIED.replace('KIND', kind)}{loop}\nretry = {policy}")
    rows = simulator.run(scenario, fidelity="compiled", check=False).requests
    status = rows["outcome"].isin(["refused", "blocked"]).map({True: 429, False: 200})
    bare = rows[["t_ns", "ip", "key", "method", "path"]].assign(status=status)
    coarse = bare.assign(t_ns=rows["t_ns"] // 500_000_000 * 500_000_000)
    told: dict[str, Any] = {"as_kind": kind, "limits": limits_of(scenario), "judged": False}
    parts = []
    for log in (rows, bare, coarse):
        found = simulator.fit(log, **told)
        parts += [found.text, found.groups.to_csv(), found.parameters.to_csv(), *found.lost]
    return same_everywhere("\n".join(parts))


def _explorer_text(name: str) -> str:
    """Return an explorer's knobs and pictures, of values that are turned and of a wrong one."""
    shown = simulator.explore(name)
    parts = [repr(knob) for knob in shown.knobs] + [shown.static]
    parts += [shown.draw({knob.path: knob.written(knob.most)}) for knob in shown.knobs]
    parts.append(shown.draw({"choices.limits.algorithm": "gcra", "duration": "2m"}))
    parts.append(shown.draw({shown.knobs[0].path: "<b>"}))
    return same_everywhere("\n".join(parts))


@contextmanager
def _many() -> Iterator[list[Scenario]]:
    """Yield scenarios of every kind: the built-in ones, drawn ones, and those with odd parts."""
    drawn = [loads(scenario_text(Seeded(seed))) for seed in range(40)]
    outside = [loads(outside_scenario_text(Seeded(seed))) for seed in range(20)]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("times.txt").write_text("0\n0.5\n7\n99\n100\n101\n")
        yield [*map(load, builtin()), *drawn, *outside, *map(loads, _ODD)]


_ODD_HEAD: Final = """
duration = "100s"
start_time = 2026-03-02T22:00:00Z
[nodes]
count = 3
sharing = "split"
balance = "key"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
keys = 5
[[addresses]]
name = "nat"
count = 4
deal = { zipf = 0.8, per = "request" }
[[clients]]
name = "c"
count = 200
application = "a"
addresses = "nat"
"""
_STEPS: Final = '[{ at = "5s", rate = "900000/1s" }, { at = "60s", rate = "2/1s" }]'
_ODD: Final = tuple(
    _ODD_HEAD.replace("[nodes]", "[choices.nodes]") + more
    for more in (
        'loop = "open"\narrivals = { kind = "daily", rate = "3/1s", day = "20s" }\nstart = "7s"',
        f'loop = "open"\narrivals = {{ kind = "steps", steps = {_STEPS} }}\nconcurrency = 2',
        (
            'loop = "open"\narrivals = { kind = "on-off", on_rate = "3/1s", on = "1s", off = "2s",'
            ' begin = "either" }'
        ),
        'loop = "open"\narrivals = { kind = "replay", file = "times.txt" }\nstart = "1s"',
        'think = "1s"\nstart = "99s"',
        'think = "1s"\n[[clients]]\nname = "none"\ncount = 0\napplication = "a"\nthink = "2s"',
        'think = { kind = "pareto", least = "200ms", alpha = 1.5 }\nkeys = { per = "request" }',
        'think = { kind = "pareto", least = "200ms", alpha = 0.5 }\nconcurrency = 2\nstop = "9s"',
        'think = { kind = "discrete", values = ["1s", "3s"], weights = [3, 1] }\nservice = "1ms"',
        (
            'think = { kind = "discrete", values = ["0s", "3s"] }\nservice = { kind = "uniform",'
            ' low = "0s", high = "2s" }'
        ),
    )
)


def _sizes_text() -> str:
    """Return about how many requests scenarios ask for, and what is said of large ones."""
    with _many() as scenarios:
        return "\n".join(f"{expected_requests(each)} {size_warning(each)}" for each in scenarios)


def _paces_text() -> str:
    """Return the changes that give clients of scenarios another pace, and what a fit varies."""
    parts = []
    with _many() as scenarios:
        for scenario in scenarios:
            for group in scenario.clients:
                now = stated_pace(group) or Fraction(3, 2)
                paces = (now / 7, now, now * 3)
                parts += [repr(at_pace("there", group, pace, now)) for pace in paces]
            factors = {group.name: 0.3 + place for place, group in enumerate(scenario.clients)}
            parts += [dump(varied(scenario, {}, factors)), dump(varied(scenario, factors, {}))]
    return same_everywhere("\n".join(parts))


def _chart_text(name: str) -> str:
    """Return every chart of a run as Vega-Lite."""
    plots = simulator.run(name, fidelity="compiled").plots
    return same_everywhere("\n".join(_of_chart(getattr(plots, chart)()) for chart in _CHARTS))


def _trace_text() -> str:
    """Return what single requests meet, under each algorithm, as rows and as a drawing."""
    times = [place / 4 for place in range(60)]
    who = simulator.caller("POST", "/tokenize", kind="public")
    parts = []
    for algorithm in ("sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra"):
        rows = simulator.trace([*times, 70.5, 71], who, algorithm=algorithm).assign(who="one")
        parts += [rows.to_csv(), _of_chart(simulator.strip(rows))]
        parts += [str(simulator.refused(rows)), simulator.spans(simulator.refused(rows))]
    return same_everywhere("\n".join(parts))


def _of_chart(chart: Any) -> str:
    """Return a chart's definition; the names of its data are digests of them, so they stay."""
    return orjson.dumps(chart.to_dict(), option=orjson.OPT_SORT_KEYS, default=str).decode()


_ASKED: Final = (
    'request = "POST /tokens"\nduplicate_share = 0.5',
    'request = "POST /token-intents"\ntypes = { token = 1, card = 2 }\ncvc = false',
    *(
        f'request = "POST /tokens/search"\npick = "{pick}"'
        for pick in ("newest", "oldest", "uniform")
    ),
    *(
        f'request = "GET /tokens/{{id}}"\npick = "{pick}"'
        for pick in ("newest", "oldest", "uniform")
    ),
    'request = "POST /detokenize"\ntokens = 2\ntokens_max = 4\npick = "uniform"',
    'request = "PATCH /tokens/{id}"',
    'request = "DELETE /tokens/{id}"',
    'request = "PATCH /proxies/{id}"',
    'request = "POST /proxies"',
    'request = "POST /applications"',
    'request = "POST /reactors"\nsize = "30B"',
    *(
        f'request = "POST /tokenize"\n{more}'
        for more in (
            "tokens = 3\ntokens_max = 5\ninvalid_share = 0.4\nduplicate_share = 0.3",
            "types = { token = 1, card = 1 }\ntokens = 4\nduplicate_share = 0.5",
            'types = { token = 0, card = 1 }\nshape = "object"',
            'shape = "object"\ninvalid_share = 0.5',
            'shape = "array"\ntokens = 2',
        )
    ),
)


def _bodies_text() -> str:
    """Return the bodies that requests of mixes carry one after the other, and batch files."""
    mix = "".join(f"[[clients.mix]]\n{item}\n" for item in _ASKED)
    scenario = loads(f'{_ODD_HEAD}think = "1s"\n{mix}')
    values, known, choose = Counter[str](), Known(), Seeded(4)
    parts = []
    for turn in range(9):
        known.add("tokens", iter([f"{turn:08d}", f"{turn + 20:08d}"]))
        for ask in scenario.clients[0].mix:
            body = body_of(ask, values, known, lambda: choose.whole(0, 999) / 1000)
            parts.append(f"{ask.request} {body!r}")
        known.forget("tokens", f"{turn // 2:08d}")
    files = [batch_file(size) for size in (1, 39, 90, 1_000_000, 1_000_001, 1_200_000)]
    return "\n".join([*parts, *(f"{len(file)} {file[:200]!r} {file[-90:]!r}" for file in files)])


_WRONG_MAPS: Final = (
    'address = "ip"',
    'time = "t"\nadress = "ip"',
    'time = "t"\nrequest = "r"\nmethod = "m"',
    'time = { value = "1" }',
    'time = { field = "t", unit = "h" }',
    'time = { field = "t", units = "s" }',
    'time = "t"\naddress = { field = "ip", unit = "s" }',
    'time = "t"\naddress = { field = "ip", value = "x" }',
    'time = "t"\naddress = { value = "x", default = "y" }',
    'time = "t"\naddress = 3',
    'time = "t"\naddress = { field = "" }',
    'time = "t"\nkey = { value = 3 }',
    'time = "t"\ntenant_kind = { value = "prod" }',
    'time = "t"\nlegacy = { value = true }\napplication_kind = { field = "a", default = "x" }',
    'time = "t"\ntenant = { field = "a", lookup = {} }',
    'time = "t"\ntenant = { field = "a", lookup = { a = "" } }',
    'time = "t"\ntenant = { field = "a", pattern = "(a)(b)" }',
    'time = "t"\ntenant = { field = "a", pattern = "(a" }',
    'time = "t"\ntenant = { field = "a", pattern = "(?P<tenant>a)(b)" }',
    'time = "t"\nline = "a"',
    'time = "t"\nline = "(?P<t>a)"\nformat = "csv"',
    'time = "t"\nformat = "cvs"',
    'time = "t"\nformat = "nothing like it"',
    'time = "t"\nline = "(?P<t>a)"',
)


def _maps_text() -> str:
    """Return what is said of maps of logs, most of them wrong."""
    parts = []
    for text in _WRONG_MAPS:
        try:
            parts.append(repr(LogMap.from_document(parse_toml(text, "map.toml"))))
        except InputError as fault:
            parts.append(str(fault))
    for names in (("Time", "client-ip", "api_key"), ("@timestamp", "cs_method", "URI"), ("x", "y")):
        try:
            found = LogMap.guess(names).with_extra(names, {"status": ["y"], "key": ["y"]})
            parts.append(repr(found))
        except InputError as fault:
            parts.append(str(fault))
    return "\n".join(parts)


STUDIES: Final[dict[str, Callable[[], str]]] = {
    **{f"fit of {name}": partial(_fit_text, name) for name in _FITTED},
    **{f"fit of drawn {seed}": partial(_drawn_fit_text, seed) for seed in _FITTED_DRAWN},
    **{f"fit of retries {number}": partial(_retries_text, number) for number in range(14)},
    **{f"charts of {name}": partial(_chart_text, name) for name in _PLOTTED},
    **{f"explorer of {name}": partial(_explorer_text, name) for name in _EXPLORED},
    "traces": _trace_text,
    "sizes": _sizes_text,
    "paces": _paces_text,
    "bodies": _bodies_text,
    "maps": _maps_text,
}
"""Name → what makes the text."""
