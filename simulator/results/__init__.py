"""Results: attempt rows as frames and Parquet, summaries, metrics, and what watches over them.

`Recorder` takes rows one by one and hands them on in chunks; sinks store them, the tally counts
them, checkers watch them. `Result` is what a run gives back. `RunBook` puts all of it together for
one run, whichever way its decisions are made.
"""

from simulator.results.book import RunBook, RunHeader
from simulator.results.folder import check_out, out_folder
from simulator.results.result import Result

__all__ = ["Result", "RunBook", "RunHeader", "check_out", "out_folder"]
