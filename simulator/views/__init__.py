"""The report: one self-contained HTML page about a run, made from its folder alone.

    write_report("runs/everyday-7")            # → runs/everyday-7/report.html

`gather` counts what the page shows, and serves the terminal's answer too. Altair charts for a
notebook are in `simulator.views.charts`.
"""

from simulator.views._findings import Findings, Party, Refusals, gather, together_ns
from simulator.views._page import REPORT_FILE, write_report
from simulator.views._text import (
    Axis,
    binding_text,
    count_text,
    counted_text,
    nodes_text,
    number_text,
    pace_text,
    plain_table,
    plain_text,
    share_text,
    span_text,
    value_text,
)
from simulator.views.charts import ADMITTED, CLAUSES, REFUSED

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
    "nodes_text",
    "number_text",
    "pace_text",
    "plain_table",
    "plain_text",
    "share_text",
    "span_text",
    "together_ns",
    "value_text",
    "write_report",
]
