"""The cases: each has a name and a function that returns its digest.

A digest of a run or a replay is one of its decisions and of all its rows; that of a help text and
of an OpenAPI document is of the whole of it. A session is what its commands print and write. A
trace is all that an engine answers, and what its store holds then. Nothing depends on the clock or
the machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args
from unittest import mock

import orjson
import pandas as pd

import simulator
from engine.http.openapi import document
from engine.limits import LimitTable
from engine.profile import LimitsProfile, Profile
from engine.tokens.rules import SchemaKind
from simulator.play.simulation import Fidelity
from simulator.scenario import builtin, load, loads, profile_of
from tests.digests._commands import SESSIONS, printed
from tests.digests._engine import TRACES, answers_text, changed_profile, demo_text
from tests.digests._files import FILES, read_text
from tests.digests._limiter import decided_text
from tests.digests._studies import STUDIES
from tests.digests._wire import wire_text
from tests.drawn import Seeded, outside_scenario_text, scenario_text

__all__ = ["Case", "cases", "short"]

_SEEDS: Final = (1, 2, 3)
_DRAWN: Final = 500
_ENGINE_EVERY: Final = 25
_LOG_ROWS: Final = 600
_LOGS: Final = 6
_DOCUMENTS: Final = 12
_KINDS: Final = ("public", "private", "management", "legacy")
_FIDELITIES: Final[tuple[Fidelity, ...]] = ("limits", "compiled", "engine")
_COMMANDS: Final = {
    "engine": "clauses limits profile serve openapi backup rotate-key",
    "simulator": "run replay fit coverage sweep capacity compare advise scenarios check init",
    "conformance": "run init check list explain replay judge selftest",
}


class Case(NamedTuple):
    """One digest: its name, how it is made, and whether `--quick` makes it."""

    name: str
    make: Callable[[], str]
    quick: bool


def cases() -> Iterator[Case]:
    """Yield every case, in the order of the committed file."""
    yield from _built_in()
    yield from _drawn()
    yield from _replayed()
    yield from _texts()
    yield from _sessions()
    yield from _answered()


def _built_in() -> Iterator[Case]:
    for name in builtin():
        several = not profile_of(load(name)).nodes.is_exact  # an engine is one node
        for fidelity in _FIDELITIES[:2] if several else _FIDELITIES:
            for seed in _SEEDS:
                play = partial(simulator.run, name, fidelity=fidelity, seed=seed)
                quick = seed == 1 and fidelity == "compiled"
                yield Case(f"run {name} {fidelity} {seed}", partial(_of_result, play), quick)


def _drawn() -> Iterator[Case]:
    """Yield drawn scenarios; a digest is of `limits` and `compiled`, some of `engine` too."""
    for word, text in (("drawn", scenario_text), ("outside", outside_scenario_text)):
        for seed in range(_DRAWN):
            make = partial(_of_drawn, text, seed)
            yield Case(f"{word} {seed:03}", make, seed % _ENGINE_EVERY == 0)


def _of_drawn(text: Callable[[Seeded], str], seed: int) -> str:
    scenario = loads(text(Seeded(seed)))
    fidelities = _FIDELITIES if seed % _ENGINE_EVERY == 0 else _FIDELITIES[:2]
    plays = [partial(simulator.run, scenario, fidelity=fidelity) for fidelity in fidelities]
    return short("".join(map(_of_result, plays)))


def _replayed() -> Iterator[Case]:
    for number in range(_LOGS):
        for fidelity in _FIDELITIES:
            make = partial(_of_frame, number, fidelity)
            yield Case(f"replay frame {number} {fidelity}", make, quick=True)
    for kind in _KINDS:
        for suffix in (".log", ".csv", ".jsonl"):
            make = partial(_of_file, kind, suffix)
            yield Case(f"replay {kind} {suffix}", make, quick=True)


def _log(seed: int) -> pd.DataFrame:
    """Return a log with requests of few keys and addresses, some at one instant or out of order."""
    choose = Seeded(seed)
    paths = ("/tokenize", "/tokens", "/tokens/abc", "/me", "/nowhere")
    step_ns = (10**6, 3 * 10**7, 4 * 10**8)[seed % 3]
    rows = [
        {
            "t_ns": 1_431_857_103 * 10**9 + (place + choose.whole(-3, 3)) * step_ns,
            "ip": f"203.0.113.{choose.whole(1, 3)}",
            "key": f"secret-{choose.whole(1, 3)}",
            "method": choose.one(("POST", "GET")),
            "path": choose.one(paths),
        }
        for place in range(_LOG_ROWS)
    ]
    return pd.DataFrame(rows)


def _of_frame(number: int, fidelity: Any) -> str:
    """Return the digest of a replay of a frame; each number has options of its own."""
    old = LimitTable.default().replace_rule("LIM-PUBLIC", rate="5/2s")
    delay = Profile(limits=LimitsProfile(throttle="delay"))
    options: tuple[dict[str, Any], ...] = (
        {"as_kind": "public"},
        {"as_kind": "private", "tenant": "test"},
        {"as_kind": "private", "tenant": "test", "profile": delay},
        {"as_kind": "public", "against": old},
        {"as_kind": "management", "speed": "3.5"},
        {"as_kind": "legacy", "limits": old, "speed": 2},
    )
    given = options[number]
    play = partial(simulator.replay, _log(number), fidelity=fidelity, **given)
    return _of_result(play, "against")


def _of_file(kind: Any, suffix: str) -> str:
    """Return the digest of a replay of a file of this form."""
    frame = _log(_KINDS.index(kind))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"access{suffix}"
        if suffix == ".log":
            at = pd.to_datetime(frame["t_ns"]).dt.strftime("%d/%b/%Y:%H:%M:%S +0000")
            columns = zip(frame["ip"], at, frame["method"], frame["path"], strict=True)
            line = '{} - - [{}] "{} {} HTTP/1.1" 200 12 "-" "curl/8"\n'
            file.write_text("".join(line.format(*row) for row in columns))
        elif suffix == ".csv":
            frame.to_csv(file, index=False)
        else:
            frame.to_json(file, orient="records", lines=True)
        return _of_result(partial(simulator.replay, file, as_kind=kind, tenant="test"), "replay")


def _of_result(play: Callable[[], simulator.Result], *parts: str) -> str:
    """Return the digest of a result: decisions, rows, totals and these parts of the summary."""
    summary = play().summary
    names = ("decisions_sha256", "sha256", "totals", *parts)
    found = {name: summary[name] for name in names if name in summary}
    assert found.keys() >= {"decisions_sha256", "sha256", "totals"}
    return short(orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode())


def _texts() -> Iterator[Case]:
    for package, commands in _COMMANDS.items():
        for command in ("", *commands.split()):
            make = partial(_of_help, package, command.split())
            yield Case(f"help {package} {command}".strip(), make, quick=True)
    for kind in get_args(SchemaKind):
        yield Case(f"openapi {kind}", partial(_of_openapi, kind, Profile()), quick=True)


def _sessions() -> Iterator[Case]:
    for name in SESSIONS:
        yield Case(f"session {name}", partial(_of_text, printed, name), quick=True)
    for name, make in STUDIES.items():
        yield Case(f"session {name}", partial(_of_study, make), quick=True)


def _answered() -> Iterator[Case]:
    for seed in range(TRACES):
        yield Case(f"answers {seed}", partial(_of_answers, seed), quick=True)
    yield Case("answers documents", _of_documents, quick=True)
    for name in FILES:
        yield Case(f"answers to files: {name}", partial(_of_text, read_text, name), quick=True)
    yield Case("answers demo", lambda: short(demo_text()), quick=True)
    yield Case("answers wire", lambda: short(wire_text()), quick=True)
    yield Case("answers limiter", lambda: short(decided_text()), quick=True)


def _of_answers(seed: int) -> str:
    return short(answers_text(seed))


def _of_study(make: Callable[[], str]) -> str:
    return short(make())


def _of_text(make: Callable[[str], str], name: str) -> str:
    return short(make(name))


def _of_help(package: str, words: list[str]) -> str:
    """Return the digest of a help text, 100 columns wide."""
    main = import_module(f"{package}.cli").main
    out = io.StringIO()
    plain = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHON_COLORS": "0"}
    with (
        mock.patch.dict(os.environ, plain),
        contextlib.redirect_stdout(out),
        contextlib.suppress(SystemExit),
    ):
        main([*words, "--help"])
    assert "usage" in out.getvalue()
    return short(out.getvalue())


def _of_openapi(kind: SchemaKind, profile: Profile) -> str:
    return short(orjson.dumps(document(kind, profile), option=orjson.OPT_SORT_KEYS).decode())


def _of_documents() -> str:
    """Return the digest of the documents of drawn profiles."""
    profiles = [changed_profile(Seeded(seed)) for seed in range(_DOCUMENTS)]
    kinds: tuple[SchemaKind, ...] = get_args(SchemaKind)
    return short("".join(_of_openapi(kind, profile) for profile in profiles for kind in kinds))


def short(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
