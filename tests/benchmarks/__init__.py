"""Benchmarks: one module a question, run by `make bench`.

Each `bench_*.py` has `main(*, big: bool) -> None`, which prints its table. Speeds are ratios that
were measured in one interleaved run (`_measure.py`), never absolute times alone: the speed of a
shared machine drifts twofold within minutes. Nothing here asserts a time.
"""
