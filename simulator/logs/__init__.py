"""Access logs as columns: the formats that servers write, JSON, CSV, Parquet, frames; packed too.

    log = stream_log("access.log.gz", map=LogMap.read("map.toml"))
    for batch in log.batches():
        batch.t_ns, batch.codes["path"], log.names["path"]
    log.unparsed, log.unparsed_first

Log text is hostile: a line that does not parse is counted and named by number and reason, never
quoted, and stops nothing. Nothing is invented: a log without addresses, methods or paths is refused
unless its user states them. Key texts stay in `log.names["key"]`; who writes anything out replaces
them by labels first. `simulator.logs.arrivals` orders and scales a log's requests;
`simulator.study.replay` puts them through the limits.
"""

from simulator.logs._log_map import KINDS, Kind, LogMap
from simulator.logs._open import stream_log
from simulator.logs._source import log_name
from simulator.logs._stream import LogBatch, LogStream
from simulator.logs.formats import FORMATS, LogFormat

__all__ = [
    "FORMATS",
    "KINDS",
    "Kind",
    "LogBatch",
    "LogFormat",
    "LogMap",
    "LogStream",
    "log_name",
    "stream_log",
]
