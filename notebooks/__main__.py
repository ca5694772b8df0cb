"""`python -m notebooks`: run every notebook, write what it shows beside it, and the static site.

Sources are jupytext percent scripts (`NN_topic.py`). Each is run top to bottom from an empty
namespace and written to `NN_topic.ipynb` with its outputs: the same bytes on every run, so that a
change in a notebook is a change in what it shows. The README's picture, the start page and the
documents of the specification are made the same way. The site
under `site/` opens offline.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from notebooks.course import FOLDER, START, sources, start_page
from notebooks.front_picture import PICTURE, draw
from notebooks.law_pages import law_pages
from notebooks.rendering import kernel, render
from notebooks.results_page import results_page
from notebooks.site import write_site


def main(argv: Sequence[str] | None = None) -> int:
    """Render; returns the exit code: 1 when `--check` finds a notebook that is not fresh."""
    parser = argparse.ArgumentParser(prog="python -m notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", help="such as 01 or 01_body_shapes; all without one")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--site", type=Path, default=FOLDER.parent / "site", metavar="DIR")
    args = parser.parse_args(argv)
    stale: list[str] = []
    chosen = [
        s for s in sources() if not args.names or any(s.stem.startswith(n) for n in args.names)
    ]
    with kernel() as client:
        for source in chosen:
            print(source.name, file=sys.stderr, flush=True)
            _put(source.with_suffix(".ipynb"), render(source, client), stale, check=args.check)
    _put(START, start_page(), stale, check=args.check)
    if not args.names:
        _put(PICTURE, draw(), stale, check=args.check)
        for name, text in law_pages().items():
            _put(FOLDER.parent / "docs" / name, text, stale, check=args.check)
        _put(FOLDER.parent / "docs" / "results.md", results_page(), stale, check=args.check)
    if args.check:
        for name in stale:
            print(f"{name} is not what its source shows; run `make notebooks`", file=sys.stderr)
        return 1 if stale else 0
    if not args.names:
        print(write_site(args.site))
    return 0


def _put(target: Path, text: str, stale: list[str], *, check: bool) -> None:
    """Name a file that is not what it should be as stale; unless it is a check, write it."""
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        stale.append(target.name)
        if not check:
            target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
