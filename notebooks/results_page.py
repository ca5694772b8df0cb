"""`docs/results.md`: what commands print and write, and what they take, made from the code.

    python -m notebooks.results_page > docs/results.md

Metrics, columns and settings are explained here, in one place; a test fails for a name that is
missing. Options and public names come with the words of their help and their docstrings.
"""

# ruff: noqa: SLF001  # reason: argparse shows a parser's options in no other way

from __future__ import annotations

import argparse
import importlib
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import Field, fields
from typing import Any, Final, get_args, get_type_hints

from conformance.cli import _parser as conformance_parser
from engine.cli import _parser as engine_parser
from engine.http.configuration import ServeConfig
from simulator.cli import _COMMANDS as SIMULATOR_COMMANDS
from simulator.cli import _parser as simulator_parser
from simulator.logs._log_map import TARGETS
from simulator.logs.formats import FORMATS, WRAPPERS
from simulator.rows.metrics import DIMENSIONS, NEEDS
from simulator.rows.record import SCHEMA
from simulator.scenario import METRICS

__all__ = ["PACKAGES", "options_of", "parsers", "results_page"]

PACKAGES: Final = ("engine", "simulator", "conformance")

_METRICS: Final = {
    "offered": ("attempts", "attempts that arrived"),
    "admitted": ("attempts", "attempts that were admitted, delayed ones included"),
    "delayed": ("attempts", "the admitted attempts that had to wait (action `delay`)"),
    "refused": ("attempts", "attempts that were refused, by a throttle or by a block"),
    "blocked": ("attempts", "the refused attempts that a block refused"),
    "refused_share": ("share, 0 to 1", "refused / offered"),
    "blocked_ns": ("ns", "total time of blocks; overlapping blocks of a counter count once"),
    "goodput_per_s": ("attempts/s", "attempts admitted and answered without an error"),
    "attempts_per_success": ("attempts", "attempts / successful attempts; 1 without refusals"),
    "wait_p50_ns": ("ns", "median delay of the admitted attempts"),
    "wait_p90_ns": ("ns", "its 90th percentile"),
    "wait_p99_ns": ("ns", "its 99th percentile"),
    "latency_p50_ns": ("ns", "median time from arrival to response, of admitted attempts"),
    "latency_p90_ns": ("ns", "its 90th percentile"),
    "latency_p99_ns": ("ns", "its 99th percentile"),
    "first_refusal_ns": ("ns", "first refusal, from the end of the warm-up; empty if none"),
    "fairness": (
        "0 to 1",
        "Jain's index over clients' admitted attempts: 1 if all have as many",
    ),
}
_COLUMNS: Final = {
    "t_ns": "arrival, from the run's start; `summary.json` has `start_time`",
    "client": "number of the client",
    "attempt": "number of the attempt at its request, from 1",
    "tenant": "name of the tenant",
    "application": "name of the application",
    "key": "label of the key, such as `key-0001`; never its text",
    "ip": "address of the client",
    "method": "method of the request",
    "path": "path of the request, with placeholders",
    "outcome": "`admitted`, `delayed`, `refused` or `blocked`",
    "rule": "the clause that refused or delayed; null when admitted",
    "wait_ns": "delay, or exact time until admissible when refused or blocked, else 0",
    "latency_ns": "from arrival to response",
    "status": "HTTP status; null where the fidelity runs no body",
}
_CLAUSES: Final = {
    "offered": "attempts to which the clause's rule applied",
    "admitted": "those admitted by all rules",
    "refused": "those that this clause refused",
    "refused_by_others": "those that another clause refused; offered = admitted + refused + this",
    "delayed": "those that this clause delayed",
    "shadow_refused": "those that it would have refused, for a rule in shadow",
    "blocked_ns": "total time of its blocks",
    "keys": "keys that it refused",
    "ips": "addresses that it refused",
    "first_refusal_ns": "its first refusal, from the run's start; empty if none",
}
_MAP: Final = {
    "time": "the instant; `unit` for numbers",
    "address": "the client's IP address",
    "key": "what identifies the key; absent for a request without one",
    "request": "method and path in one field, instead of both below",
    "method": "the method",
    "path": "the path",
    "tenant": "name of the tenant",
    "tenant_kind": "`production` or `test`",
    "application": "name of the application",
    "application_kind": "`private`, `public`, `management` or `legacy`",
    "legacy": "`true` for a legacy key of a private application",
}
_EXIT_CODES: Final = {
    0: "fine: no finding, and everything asked for was done or passed",
    1: "a finding: a failed clause, a threshold that is not met, a difference; with `--strict`"
    " also a partial or undecided result",
    2: "usage or bad input",
    3: "the target is unreachable, rejects every key, or is at a wrong address",
    4: "the harness itself failed",
    5: "nothing, or not everything that was asked for, could be judged",
    130: "interrupted",
}
_INTRODUCTION: Final = """\
# Results and settings

Made from the code by `python -m notebooks.results_page`.
"""


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command, such as `simulator run`, with its parser."""
    made = {
        "engine": engine_parser(),
        "simulator": simulator_parser(SIMULATOR_COMMANDS),
        "conformance": conformance_parser(),
    }
    for package, parser in made.items():
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, command in action.choices.items():
                    yield f"{package} {name}", command


def options_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield the options and arguments of a command, each with its help."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        names = action.option_strings
        metavar = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
        value: str | None = metavar if isinstance(metavar, str) else " ".join(metavar)
        if action.choices:
            value = "|".join(map(str, action.choices))
        if action.nargs == 0:
            value = None
        name = ", ".join(names) or value or action.dest
        shown = f"{name} {value}" if names and value else name
        yield shown, (action.help or "").replace("%%", "%")


def results_page() -> str:
    """Return the page."""
    return "\n".join([_INTRODUCTION, *_results(), *_settings(), *_names()])


def _results() -> Iterator[str]:
    conditions = {metric.column: name for name, metric in METRICS.items()}
    yield "## Metrics\n"
    yield (
        "A metric is a column of `result.metrics(by=…)`, of a sweep's frame and of `compare`. In\n"
        "`[[thresholds]]` of a scenario and in `--keep`, it has the name of the third column, and\n"
        "may have labels: `refused_share{client='browsers'} <= 0.01`. There, a time has its unit:\n"
        "`latency_p99 <= 200ms`. `by` takes\n"
        + textwrap.fill(", ".join(f"`{name}`" for name in DIMENSIONS) + ".", 96)
        + "\n"
    )
    yield _table(
        ("column", "unit", "in conditions", "meaning"),
        (
            (f"`{name}`", _METRICS[name][0], f"`{conditions[name]}`", _METRICS[name][1])
            for name in NEEDS
        ),
    )
    yield "## Columns of requests.parquet\n"
    yield "One row per attempt, in the order of decisions.\n"
    yield _table(
        ("column", "type", "meaning"),
        ((f"`{field.name}`", _type(field), _COLUMNS[field.name]) for field in SCHEMA),
    )
    yield "## Columns by clause\n"
    yield "Of `result.clauses`, and of `clauses` in `summary.json`; `run` prints most of them.\n"
    yield _table(("column", "meaning"), ((f"`{name}`", text) for name, text in _CLAUSES.items()))
    yield "## Exit codes\n"
    yield "The same for all commands.\n"
    yield _table(("code", "meaning"), ((str(code), text) for code, text in _EXIT_CODES.items()))


def _settings() -> Iterator[str]:
    yield "## --map\n"
    yield (
        "A TOML file with one entry for each part of a request: the name of a field, or a\n"
        "table with `field` or `value`, and with `pattern`, `lookup` and `default`. `format`,\n"
        "`line` and `columns` describe how lines are read. The [guide](simulator.md#map) has\n"
        "examples.\n"
    )
    yield _table(("entry", "what it holds"), ((f"`{name}`", _MAP[name]) for name in TARGETS))
    yield "## Log formats\n"
    yield (
        "What `replay` and `fit` read. They detect the format from the first lines, unless\n"
        "`--format NAME` states it.\n"
    )
    yield _table(
        ("format", "layout", "logs of"),
        ((f"`{form.name}`", form.layout, form.title) for form in FORMATS.values()),
    )
    carriers = ", ".join(dict.fromkeys(wrapper.title for wrapper in WRAPPERS))
    yield textwrap.fill(f"Removed around each line: {carriers}.", 96, break_on_hyphens=False) + "\n"
    yield "Unpacked: gzip, bzip2, xz, zstd, lz4.\n"
    yield "## serve.toml\n"
    yield _table(("setting", "what it is", "default"), map(_setting, fields(ServeConfig)))
    yield "## Commands\n"
    yield "`python -m engine`, `simulator` and `conformance`, or `tollgate-engine` and so on.\n"
    for name, parser in parsers():
        yield f"### {name}\n"
        lines = [(f"`{option}`", text) for option, text in options_of(parser)]
        yield textwrap.fill(parser.description or "", 96) + "\n"
        if lines:
            yield _table(("option", "meaning"), lines)


def _names() -> Iterator[str]:
    yield "## Public names\n"
    for package in PACKAGES:
        module = importlib.import_module(package)
        yield f"### {package}\n"
        yield _table(
            ("name", "what it is"),
            ((f"`{name}`", _summary(getattr(module, name))) for name in module.__all__),
        )


def _summary(value: object) -> str:
    if isinstance(value, tuple):
        return f"Every {type(value[0]).__name__} of the specification."
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return " ".join(paragraph.split())


def _setting(field: Field[Any]) -> tuple[str, str, str]:
    hint = get_type_hints(ServeConfig, include_extras=True)[field.name]
    text = next((part for part in get_args(hint)[1:] if isinstance(part, str)), "")
    if not text:
        text = f"`[[{field.name}]]`, one table each"
    is_text = isinstance(field.default, str) and field.default
    default = f'`"{field.default}"`' if is_text else "none"
    return f"`{field.name}`", text, default


def _type(field: Any) -> str:  # reason: a field of Arrow, which has no types
    return "text" if "dictionary" in str(field.type) else str(field.type)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


if __name__ == "__main__":
    print(results_page(), end="")
