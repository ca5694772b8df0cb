"""Results: attempt rows as frames and Parquet, summaries, metrics, and what watches over them.

`Recorder` takes rows one by one and passes them on in chunks; sinks store them, the tally counts
them, checkers check them. A run returns a `Result`. `RunBook` connects all of it for one run, for
every backend.
"""

from simulator.rows.result import Result, check_out, out_folder
from simulator.rows.run_writer import RunBook, RunHeader

__all__ = ["Result", "RunBook", "RunHeader", "check_out", "out_folder"]
