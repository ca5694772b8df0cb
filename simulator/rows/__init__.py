"""Results: attempt rows as frames and Parquet, summaries, metrics, and what watches over them.

`Recorder` takes rows one by one and passes them on in chunks; sinks store them, the statistics
count them, checkers check them. A run returns a `Result`. `RunRecorder` connects all of it for one
run, for every backend.
"""

from simulator.rows.result import Result, check_out, out_folder
from simulator.rows.run_recorder import RunHeader, RunRecorder

__all__ = ["Result", "RunHeader", "RunRecorder", "check_out", "out_folder"]
