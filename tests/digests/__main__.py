"""`python -m tests.digests [--quick] [--write] [WORD…]` compares digests with the committed ones.

It says which differ; the exit code is 1 when one does. `--write` commits them to the file instead.
`--quick` makes a part in about 2 min; WORDs choose the names that hold one of them. Help texts are
those of Python 3.11; other versions lay some of them out in another way.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tests.digests._cases import cases

FILE: Final = Path(__file__).with_name("digests.txt")


def committed() -> dict[str, str]:
    """Return the digests of the file by name."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {name: digest for digest, _, name in (line.partition(" ") for line in lines)}


def main(arguments: list[str] | None = None) -> int:
    """Make and compare digests; 1 when one differs from the file's."""
    parser = argparse.ArgumentParser(prog="python -m tests.digests", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of a name; default: all")
    parser.add_argument("--quick", action="store_true", help="only a part, in about 2 min")
    parser.add_argument("--write", action="store_true", help="write the file")
    options = parser.parse_args(arguments)
    known, found = committed(), {}
    for case in cases():
        chosen = not options.words or any(word in case.name for word in options.words)
        if chosen and (case.quick or not options.quick):
            found[case.name] = case.make()
            if found[case.name] != known.get(case.name):
                print(f"differs: {case.name}", flush=True)
    changed = [name for name, digest in found.items() if digest != known.get(name)]
    print(f"{len(found) - len(changed)} of {len(found)} digests are those of {FILE.name}")
    if options.write:
        merged = known | found
        lines = [f"{merged[case.name]} {case.name}\n" for case in cases() if case.name in merged]
        FILE.write_text("".join(lines))
        return 0
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
