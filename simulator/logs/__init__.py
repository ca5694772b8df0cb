"""Access logs as columns: combined and common format, CSV, JSON lines, Parquet, frames; gzip too.

    log = read_log("access.log.gz", map=LogMap.read("map.toml"))
    log.t_ns, log.fields["path"].names, log.unparsed, log.unparsed_first

    stream = stream_log("access.log.gz")
    for batch in stream.batches():
        batch.t_ns, batch.codes["path"], stream.names["path"]

Log text is hostile: a line that does not parse is counted and named by number and reason, never
quoted, and stops nothing. Key texts stay in `log.fields["key"].names`; who writes anything out
replaces them by labels first. `simulator.logs.arrivals` orders and scales a log's requests;
`simulator.study.replay` puts them through the limits.
"""

from simulator.logs._formats import Field, Log, read_log, stream_log
from simulator.logs._log_map import FORMATS, KINDS, Format, Kind, LogMap, map_schema
from simulator.logs._source import log_name
from simulator.logs._stream import ADDRESS, LogBatch, LogStream

__all__ = [
    "ADDRESS",
    "FORMATS",
    "KINDS",
    "Field",
    "Format",
    "Kind",
    "Log",
    "LogBatch",
    "LogMap",
    "LogStream",
    "log_name",
    "map_schema",
    "read_log",
    "stream_log",
]
