"""The commands: `clauses`, `limits`, `profile`, `openapi`, `serve`, `backup`, `rotate-key`.

Exit codes: 0 fine, 2 usage or bad input, 130 interrupted. Bad input is one line, no traceback.

`serve` prints JSON lines on standard output, flushed: `{"url": …}`, a line for each new key (with
`--demo` for each of its keys), and `{"role": "end", …}` with the server's bounds of memory and
time.

`backup` copies a store file; `rotate-key` puts it under another master key.

A backup is a consistent snapshot, also of a store that a server has open. A rotation is one
transaction: after a kill, exactly one of the old and the new master key opens the whole store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import re
import socket
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.command_line import (
    Parser,
    add_exit_codes,
    add_version,
    complete,
    number_of,
    require_extra,
    run_command,
    schema_line,
)
from engine.errors import InputError, VaultError, reason_of

if TYPE_CHECKING:
    from engine.http.configuration import ServeConfig
    from engine.limits import LimitTable
    from engine.profile import Profile
    from engine.service import Engine
    from engine.store import Store

_LABELS: Final = {"check": "checks", "notebook": "chapters"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    parser = _parser()
    complete(parser)
    args = parser.parse_args(argv)
    return run_command("engine", lambda: args.run(args))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m engine",
        description="Look up the specification, serve the engine, and maintain its store.",
    )
    add_version(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    clauses = commands.add_parser(
        "clauses",
        help="print clauses, and where each is implemented and checked",
        description="Print what a clause requires and where it is implemented, tested and checked.",
    )
    ids = "an id, a prefix such as TOK-, or a decision such as D-ORDER (default: all clauses)"
    clauses.add_argument("ids", nargs="*", metavar="ID", help=ids)
    clauses.add_argument("--tests", action="store_true", help="print the tests of each clause too")
    clauses.set_defaults(run=_clauses)
    limits = commands.add_parser(
        "limits",
        help="print a limit table",
        description="Print a limit table: what each rule matches, counts and does.",
    )
    limits.add_argument(
        "file", nargs="?", help="a limits.toml (default: the specification's table)"
    )
    limits.add_argument(
        "--toml", action="store_true", help="print as TOML that you can edit and pass to --limits"
    )
    limits.set_defaults(run=_limits)
    profile = commands.add_parser(
        "profile",
        help="print every open choice, as TOML to edit",
        description="Print every choice that the specification leaves open, as TOML to edit.",
    )
    profile.add_argument("file", nargs="?", help="a profile.toml (default: the defaults)")
    profile.set_defaults(run=_profile)
    add_serve_arguments(commands.add_parser("serve", help="serve the engine over HTTP"))
    add_openapi_arguments(commands.add_parser("openapi", help="write an OpenAPI document"))
    add_backup_arguments(
        commands.add_parser("backup", help="copy a store, also while it is being served")
    )
    add_rotate_key_arguments(
        commands.add_parser("rotate-key", help="encrypt a store's data keys with a new master key")
    )
    add_exit_codes(parser, commands, "0 fine, 2 usage or bad input")
    return parser


def _clauses(args: argparse.Namespace) -> int:
    from engine.clauses import CLAUSES

    if not args.ids:
        for clause in CLAUSES:
            print(f"{clause.id:<22} {clause.seed_section:<5} {clause.status:<10} {clause.text}")
        return 0
    decisions = [name for name in args.ids if name.startswith("D-")]
    for name in decisions:
        _print_decision(name)
    if len(decisions) < len(args.ids):
        _print_clauses([name for name in args.ids if name not in decisions], tests=args.tests)
    return 0


def _print_clauses(names: list[str], *, tests: bool) -> None:
    from engine.clauses import load_index, select

    index = load_index()
    for clause in select(names):
        print(f"{clause.id}  (section {clause.seed_section}, {clause.status})")
        print(textwrap.indent(textwrap.fill(clause.text, 96), "  "))
        _print_choices(clause.decisions)
        if clause.unobservable:
            print(f"  not observable: {clause.unobservable}")
        if clause.masked:
            print(f"  partly masked: {clause.masked}")
        for kind, places in index[clause.id].items():
            if kind == "tests" and not tests:
                print(f"  tests: {len(places)}; --tests prints them")
                continue
            print(f"  {_LABELS.get(kind, kind)}:" + ("  none yet" if not places else ""))
            for place in places:
                print(f"    {place}")
        print()


def _print_decision(name: str) -> None:
    from engine.clauses import open_decision

    decision = open_decision(name)
    labels = {
        "default": decision.default,
        "alternatives, for study" if decision.study else "alternatives": decision.alternatives,
        "profile": ", ".join(decision.fields) or None,
        "fixed": decision.fixed,
    }
    print(f"{decision.id}  {decision.question}")
    for label, text in labels.items():
        if text is not None:
            print(textwrap.indent(textwrap.fill(f"{label}: {text}", 96), "  "))
    print()


def _print_choices(decisions: Sequence[str]) -> None:
    from engine.profile import decisions as fields_by_decision

    fields = fields_by_decision()
    for decision in decisions:
        held = ", ".join(fields.get(decision, [])) or "fixed, not a profile setting"
        print(f"  {decision}: {held}")


def _limits(args: argparse.Namespace) -> int:
    from engine.limits import LimitTable, render

    table = LimitTable.default() if args.file is None else LimitTable.from_toml(args.file)
    if args.toml:
        print(schema_line("engine.limits", "limits.schema.json") + table.to_toml().rstrip())
    else:
        print(render(table))
    return 0


def _profile(args: argparse.Namespace) -> int:
    from engine.profile import Profile

    profile = Profile() if args.file is None else Profile.from_toml(args.file)
    head, _, text = profile.to_toml(explained=True).partition("\n")
    assert head == "#:schema profile.schema.json", "a name that is right beside the file alone"
    print(schema_line("engine", "profile.schema.json") + text.rstrip())
    return 0


_log: Final = logging.getLogger("tollgate")
_PORT: Final = 8420
_LOOP: Final = () if sys.platform == "win32" else ("uvloop",)
_DEMO_KEYS: Final = 8
_SWITCH_S: Final = 0.001
"""The longest time for which the large-body thread may hold the interpreter lock."""

_BASE_BYTES: Final = 250_000_000
"""The memory of a server with an empty store and no callers, full caches included."""

_READ_BYTES: Final = 250_000_000
"""The most memory that the one body in the worker thread takes, its answer included."""

_CONNECTION_BYTES: Final = 40_000
"""The memory of a connection with a request of up to 4 kB."""

_COUNTER_BYTES: Final = 750
"""The memory of a counter with few charges; each further charge in its window takes 40 bytes."""

_CHECKED_BYTES: Final = 500_000_000
"""A store of up to this size is checked whole before it is served: some five seconds."""

KEY_VARIABLE: Final = "TOLLGATE_MASTER_KEY"


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `serve`."""
    parser.set_defaults(run=serve)
    parser.description = "Serve the engine over HTTP until stopped."
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--port",
        type=number_of("a port", 0, 65_535),
        default=_PORT,
        help=f"port, 0 for any free one ({_PORT})",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--config", metavar="FILE", help="a serve.toml: tenants, applications, keys")
    what.add_argument("--demo", action="store_true", help="create tenants and keys of every role")
    parser.add_argument(
        "--demo-keys",
        type=number_of("a whole number", 1, 9_999),
        metavar="N",
        help=f"keys of each role that needs several ({_DEMO_KEYS})",
    )
    parser.add_argument(
        "--write-target", metavar="FILE", type=Path, help="write the demo's conformance target"
    )
    parser.add_argument(
        "--store",
        metavar="PATH",
        help="SQLite file for tokens, keys and logs (default: memory)",
    )
    parser.add_argument(
        "--access-log",
        metavar="FILE",
        type=Path,
        help="append one line per request, which `simulator replay` reads; no secrets",
    )
    parser.add_argument(
        "--access-log-format", choices=("combined", "json"), help="its format (combined)"
    )
    parser.add_argument(
        "--metrics",
        type=_address,
        metavar="HOST:PORT",
        help="serve /metrics only at this address, such as 127.0.0.1:9464",
    )
    parser.add_argument("--limits", metavar="FILE", help="a limit table instead of the default one")
    parser.add_argument(
        "--profile", metavar="FILE", help="a profile.toml: choices other than the defaults"
    )
    parser.add_argument(
        "--workers",
        type=number_of("a whole number", 1, 9_999),
        default=1,
        metavar="N",
        help="must be 1; counters live in the process",
    )
    parser.add_argument(
        "--trust-forwarded",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a proxy, or network of proxies, whose X-Forwarded-For is trusted; may be repeated",
    )


def add_openapi_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `openapi`."""
    parser.set_defaults(run=openapi)
    parser.description = "Write an OpenAPI 3.1 document of the service."
    parser.add_argument(
        "--kind",
        choices=("full", "floor", "ceiling"),
        default="full",
        help="full: what this engine does; floor: what must be accepted; ceiling: what may be",
    )
    parser.add_argument(
        "--profile", metavar="FILE", help="a profile.toml: choices other than the defaults"
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="file to write (default: standard output)"
    )


def openapi(args: argparse.Namespace) -> int:
    """Write the document."""
    from engine.http.openapi import document

    text = (
        json.dumps(document(args.kind, _chosen_profile(args)), indent=2, ensure_ascii=False) + "\n"
    )
    if args.out is None:
        sys.stdout.write(text)
        return 0
    try:
        args.out.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = reason_of(error)
        raise InputError(f"--out = {args.out} must be a file to write: {reason}") from None
    return 0


def serve(args: argparse.Namespace) -> int:
    """Serve until stopped; returns 0, or 130 after Ctrl-C."""
    require_extra("server", "httptools", "prometheus_client", "uvicorn", *_LOOP)
    from engine.http.server import bind

    _check(args)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    bound = bind(args.host, args.port)
    with bound, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(args, bound))


def _check(args: argparse.Namespace) -> None:
    if args.workers > 1:
        raise InputError(
            f"--workers = {args.workers} must be 1: the limits' counters live in the process, and "
            f"{args.workers} of them would admit {args.workers} times each rate; leave it out"
        )
    if not args.demo and (args.write_target is not None or args.demo_keys is not None):
        name = "--write-target" if args.write_target is not None else "--demo-keys"
        raise InputError(f"{name} must stand with --demo; add it")
    if args.access_log_format is not None and args.access_log is None:
        raise InputError("--access-log-format must stand with --access-log; add it")
    if not (args.demo or args.config or args.store):
        raise InputError("there is nothing to serve; give --demo, --config FILE or --store PATH")


def _loop_factory() -> Any:  # noqa: ANN401 # reason: a factory of event loops, or None
    if not _LOOP:
        return None
    import uvloop

    return uvloop.new_event_loop


async def _serve(args: argparse.Namespace, bound: socket.socket) -> int:
    from engine.http.server import slow_destination

    demo = slow_destination() if args.demo else contextlib.nullcontext("")
    async with demo as demo_url:
        return await _serve_beside(demo_url, args, bound)


async def _serve_beside(demo_url: str, args: argparse.Namespace, bound: socket.socket) -> int:
    """Serve; demo_url is the address of the demo's own destination, empty without one."""
    from engine.http.access_log import AccessLog
    from engine.http.configuration import ServeConfig, load, provision
    from engine.http.demo import line_of
    from engine.http.requests import parse_networks
    from engine.http.server import serve as serve_engine
    from engine.identity import make_origins

    config, document = load(args.config) if args.config else (ServeConfig(), None)
    trusted = (
        *parse_networks(config.trusted_proxies, "trusted_proxies"),
        *parse_networks(args.trust_forwarded, "--trust-forwarded"),
    )
    address = args.metrics or config.metrics_address
    metrics = None if address is None else _bind_metrics(address)
    engine, secret = _engine(args, config, demo_url)
    access_log = (
        None
        if args.access_log is None
        else AccessLog(args.access_log, args.access_log_format or "combined", engine)
    )
    url = _url(bound)
    if document is not None:
        header = engine.profile.http.key_header
        lines = [
            line_of(made.application.name, made.text, header, made.tenant, made.application)
            for made in provision(engine, config, document)
        ]
    elif args.demo:
        lines = _demo(args, engine, secret, url, demo_url)
    else:
        lines = []

    for line in engine.refused_hosts():
        _log.warning("%s", line)

    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()  # the objects made so far live as long as the process: never collect them
    gc.set_threshold(20_000, 20, 50)

    where = [] if metrics is None else [{"role": "metrics", "url": f"{_url(metrics)}/metrics"}]

    async def started() -> None:
        _print([{"url": url}, *lines, *where, _last_line(engine)])

    try:
        return await serve_engine(
            engine,
            bound,
            trusted=trusted,
            origins=make_origins(config.cors_origins),
            demo_keys=lines if args.demo else (),
            metrics=metrics,
            access_log=access_log,
            on_start=started,
        )
    finally:
        if access_log is not None:
            access_log.close()
        if metrics is not None:
            metrics.close()


def _engine(args: argparse.Namespace, config: ServeConfig, demo_url: str) -> tuple[Engine, bytes]:
    """Return the engine, and the secret that a demo's key texts are derived from."""
    from engine.http.configuration import load_runtime
    from engine.http.system import Destinations, SystemWorld
    from engine.service import Engine
    from engine.store import MemoryStore, SqliteStore

    profile = _chosen_profile(args)
    path = args.store or (None if config.store == "memory" else config.store)
    master_key = master_key_of(config, path)
    if demo_url:
        destinations = Destinations([demo_url], ["127.0.0.1"])
    else:
        destinations = Destinations(config.allowed_destinations, config.private_destinations)
    runtime = None if config.reactor_runtime is None else load_runtime(config.reactor_runtime)
    limits = _chosen_limits(args, config)
    store: Store = MemoryStore()
    if path is not None:  # a timer empties its log
        store = SqliteStore(path, truncates=False, checked_bytes=_CHECKED_BYTES)
    try:
        engine = Engine(
            profile=profile,
            limits=limits,
            world=SystemWorld(
                destinations=destinations,
                answer_limit_bytes=profile.outside.answer_limit_bytes,
                runtime=runtime,
            ),
            store=store,
            master_key=master_key,
            region=config.region,
            own_names=(*config.own_names, args.host, socket.gethostname()),
        )
    except VaultError:
        store.close()
        raise _wrong_master_key(path) from None
    return engine, master_key


def _wrong_master_key(path: str | None) -> InputError:
    return InputError(
        f"master_key must be the one that {path} was made with; it does not open its keys"
    )


def master_key_of(config: ServeConfig, path: str | None) -> bytes:
    """Return the master key of a store; a new one for a store in memory."""
    from engine.http.configuration import read_master_key

    text = config.master_key or os.environ.get(KEY_VARIABLE)
    if text is None or (path is None and config.master_key is None):
        if path is None:
            return os.urandom(32)
        raise InputError(
            f"master_key is missing; {path} is kept, so give 32 bytes in base64 or hex that you "
            f"keep too, as master_key in the configuration or in the environment as {KEY_VARIABLE}"
        )
    key = read_master_key(text)
    if key is None:
        raise InputError(f"{KEY_VARIABLE} must be 32 bytes in base64 or hex")
    return key


def _chosen_profile(args: argparse.Namespace) -> Profile:
    from engine.profile import Profile

    return Profile() if args.profile is None else Profile.from_toml(args.profile)


def _chosen_limits(args: argparse.Namespace, config: ServeConfig) -> Mapping[str, LimitTable]:
    from engine.limits import LimitTable

    default = LimitTable.default() if args.limits is None else LimitTable.from_toml(args.limits)
    others = {n: LimitTable.from_toml(include.file) for n, include in config.limit_tables.items()}
    return {"Default": default, **others}


def _demo(
    args: argparse.Namespace, engine: Engine, secret: bytes, url: str, destination_url: str
) -> list[dict[str, Any]]:
    from engine.http.demo import demo_lines, write_target

    keys = _DEMO_KEYS if args.demo_keys is None else args.demo_keys
    lines = list(demo_lines(engine, secret, keys, destination_url))
    if args.write_target is not None:
        write_target(
            args.write_target, url, engine, lines, profile=args.profile, limits=args.limits
        )
    return lines


def _last_line(engine: Engine) -> dict[str, Any]:
    """Return the last line: the server's bounds of memory and time, whatever callers send."""
    from engine.http.requests import BUDGET_BYTES, OWNER_BYTES
    from engine.http.server import ERASED_WITHIN_S, connections_limit

    counters_limit = engine.profile.limits.counters_limit
    counters_bytes = counters_limit * _COUNTER_BYTES
    connections = connections_limit()
    connections_bytes = connections * _CONNECTION_BYTES
    return {
        "role": "end",
        "memory_bytes": sum(
            (_BASE_BYTES, BUDGET_BYTES, _READ_BYTES, connections_bytes, counters_bytes)
        ),
        "bodies_bytes": BUDGET_BYTES,
        "bodies_bytes_a_caller": OWNER_BYTES,
        "connections": connections,
        "connections_bytes": connections_bytes,
        "counters": counters_limit,
        "counters_bytes": counters_bytes,
        "erased_within_s": ERASED_WITHIN_S,
    }


def _bind_metrics(address: str) -> socket.socket:
    from engine.http.server import bind

    host, _, port = address.rpartition(":")
    return bind(host.strip("[]"), int(port), "--metrics")


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _print(lines: Iterable[Mapping[str, Any]]) -> None:
    with contextlib.suppress(BrokenPipeError):  # keep serving when nobody reads the output
        for line in lines:
            print(json.dumps(line), flush=True)


def _address(text: str) -> str:
    from engine.http.configuration import ADDRESS_FORM, ADDRESS_RULE

    if re.fullmatch(ADDRESS_FORM, text) is None or int(text.rpartition(":")[2]) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} {ADDRESS_RULE}")
    return text


_NEW_KEY_VARIABLE: Final = "TOLLGATE_NEW_MASTER_KEY"


def add_backup_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `backup`."""
    parser.set_defaults(run=backup)
    parser.description = (
        "Write a consistent copy of a store, even while it is being served. "
        "It opens with the same master key."
    )
    parser.add_argument("path", metavar="PATH", help="the file to make; it must not exist")
    _add_store(parser)


def add_rotate_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `rotate-key`."""
    parser.set_defaults(run=rotate_key)
    parser.description = (
        "Encrypt a store's data keys with a new master key. The current key is read from the "
        f"configuration or {KEY_VARIABLE}, the new one from {_NEW_KEY_VARIABLE}: 32 bytes in "
        "base64 or hex. A running server continues; start it with the new key the next time."
    )
    _add_store(parser)


def _add_store(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--store", metavar="PATH", help="the store's file")
    which.add_argument("--config", metavar="FILE", help="the serve.toml that names it")


def backup(args: argparse.Namespace) -> int:
    """Write the copy and print its path and size."""
    from engine.store import back_up

    path, _ = _store_of(args)
    size_bytes = back_up(path, args.path)
    print(f"{args.path}: {size_bytes} bytes, a whole store")
    return 0


def rotate_key(args: argparse.Namespace) -> int:
    """Rotate the master key and print the number of tenants."""
    from engine.http.configuration import read_master_key
    from engine.store import SqliteStore
    from engine.vault import Vault

    path, config = _store_of(args)
    old = master_key_of(config, path)
    given = os.environ.get(_NEW_KEY_VARIABLE)
    new = None if given is None else read_master_key(given)
    if new is None:
        raise InputError(f"{_NEW_KEY_VARIABLE} must be the new master key: 32 bytes, base64 or hex")
    if new == old:
        raise InputError(f"{_NEW_KEY_VARIABLE} must be another key than the one in force")
    with SqliteStore(path) as store:
        vault = Vault(old, os.urandom, store)
        try:
            with store.transaction():
                vault.rotate(new)
                count = len(store.secrets())
        except VaultError:
            raise _wrong_master_key(path) from None
    print(f"{path}: {count} keys are under the new master key; the old one opens none of them")
    return 0


def _store_of(args: argparse.Namespace) -> tuple[str, ServeConfig]:
    """Return the file that `--store` or the configuration names, and the configuration."""
    from engine.http.configuration import ServeConfig, load

    config = ServeConfig() if args.config is None else load(args.config)[0]
    path = args.store or (None if config.store == "memory" else config.store)
    if path is None:
        raise InputError(f"{args.config}: store must be a file; memory keeps nothing")
    if not os.path.isfile(path):  # noqa: PTH113 # reason: a path as it was given
        raise InputError(f"store = {path} must be a store that exists")
    return path, config
