"""Access logs as columns: combined and common format, CSV, JSON lines, Parquet, frames; gzip too.

    log = stream_log("access.log.gz", map=LogMap.read("map.toml"))
    for batch in log.batches():
        batch.t_ns, batch.codes["path"], log.names["path"]
    log.unparsed, log.unparsed_first

Log text is hostile: a line that does not parse is counted and named by number and reason, never
quoted, and stops nothing. Key texts stay in `log.names["key"]`; who writes anything out replaces
them by labels first. `simulator.logs.arrivals` orders and scales a log's requests;
`simulator.study.replay` puts them through the limits.
"""

from simulator.logs._formats import stream_log
from simulator.logs._log_map import FORMATS, KINDS, Format, Kind, LogMap
from simulator.logs._source import log_name
from simulator.logs._stream import ADDRESS, LogBatch, LogStream

__all__ = [
    "ADDRESS",
    "FORMATS",
    "KINDS",
    "Format",
    "Kind",
    "LogBatch",
    "LogMap",
    "LogStream",
    "log_name",
    "stream_log",
]
