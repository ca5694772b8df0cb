"""The report: one self-contained HTML page about a run, made from its folder alone.

    write_report("runs/everyday-7")            # → runs/everyday-7/report.html

`gather` counts what the page shows, and serves the terminal's answer too. Altair charts for a
notebook are in `simulator.report.plots`, which is not loaded here.
"""

from simulator.report._findings import Findings, Party, Refusals, gather, together_ns
from simulator.report._lines import binding_text, pace_text
from simulator.report._page import REPORT_FILE, write_report
from simulator.report._palette import ADMITTED, CLAUSES, REFUSED
from simulator.report._words import (
    Axis,
    count_text,
    counted_text,
    plain_text,
    share_text,
    span_text,
)

__all__ = [
    "ADMITTED",
    "CLAUSES",
    "REFUSED",
    "REPORT_FILE",
    "Axis",
    "Findings",
    "Party",
    "Refusals",
    "binding_text",
    "count_text",
    "counted_text",
    "gather",
    "pace_text",
    "plain_text",
    "share_text",
    "span_text",
    "together_ns",
    "write_report",
]
