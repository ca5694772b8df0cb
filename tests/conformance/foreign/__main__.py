"""`python -m tests.conformance.foreign [WORD…]`: the verdicts on limiters that others wrote.

It runs each limiter in the right configuration and in wrong ones, one after the other, prints a
line for each, and exits 1 where a right one failed or a wrong one passed. WORDs choose the names
that hold one of them.
"""

from __future__ import annotations

import sys

from _pytest.outcomes import Skipped

from conformance.context.verdicts import Verdict
from tests.conformance.foreign._limiters import Judged, configurations, judge

__all__ = ["main"]


def main(words: list[str]) -> int:
    """Judge the chosen limiters and print the table."""
    judged: list[Judged] = []
    for configuration in configurations():
        if words and not any(word in configuration.name for word in words):
            continue
        try:
            result = judge(configuration)
        except Skipped as why:
            print(f"{configuration.name:58} skipped: {why}", flush=True)
            continue
        judged.append(result)
        mark = " " if result.is_right else "!"
        print(
            f"{mark} {configuration.name:58} {result.verdict.word:12} {result.took_s:4.0f} s  "
            f"{result.message[:110]}",
            flush=True,
        )
    right = [x for x in judged if not x.configuration.fault]
    wrong = [x for x in judged if x.configuration.fault]
    print(f"right: {sum(x.is_right for x in right)} of {len(right)} pass")
    print(f"wrong: {sum(x.is_right for x in wrong)} of {len(wrong)} fail")
    is_false = any(x.verdict is Verdict.FAIL for x in right)
    is_false |= any(x.verdict is Verdict.PASS for x in wrong)
    return int(is_false)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
