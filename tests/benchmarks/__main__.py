"""`python -m tests.benchmarks [--big] [NAME…]` runs each benchmark in a process of its own.

A fresh process a benchmark: no one inherits another's memory, caches or compiled code, and one
that crashes stops no other. The exit code is 1 when one crashed.
"""

import argparse
import importlib
import os
import pkgutil
import platform
import subprocess
import sys

from tests import benchmarks


def _names() -> list[str]:
    modules = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name.removeprefix("bench_") for name in modules if name.startswith("bench_"))


def _run_here(name: str, *, big: bool) -> None:
    importlib.import_module(f"tests.benchmarks.bench_{name}").main(big=big)


def _run_apart(name: str, *, big: bool) -> bool:
    print(f"\n=== {name} ===", flush=True)
    command = [sys.executable, "-m", "tests.benchmarks", "--here", name]
    code = subprocess.run(command + ["--big"] * big, check=False).returncode
    if code:
        print(f"{name} stopped with exit code {code}", flush=True)
    return code == 0


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks, or all; 0 when none crashed, 2 for an unknown name."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a benchmark; default: all")
    parser.add_argument("--big", action="store_true", help="the largest sizes too")
    parser.add_argument("--here", action="store_true", help="run in this process")
    options = parser.parse_args(arguments)
    known = _names()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"NAME = {unknown[0]} must be one of: {', '.join(known)}")
    chosen = options.names or known
    if options.here:
        for name in chosen:
            _run_here(name, big=options.big)
        return 0
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    done = [_run_apart(name, big=options.big) for name in chosen]
    return 0 if all(done) else 1


if __name__ == "__main__":
    raise SystemExit(main())
