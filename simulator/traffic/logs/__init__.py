"""Access logs as columns: combined and common format, CSV, JSON lines, Parquet, frames; gzip too.

    log = read_log("access.log.gz", map=LogMap.read("map.toml"))
    log.t_ns, log.fields["path"].names, log.unparsed, log.unparsed_first

    stream = stream_log("access.log.gz")
    for batch in stream.batches():
        batch.t_ns, batch.codes["path"], stream.names["path"]

Log text is hostile: a line that does not parse is counted and named by number and reason, never
quoted, and stops nothing. Key texts stay in `log.fields["key"].names`; who writes anything out
replaces them by labels first. Ordering, time scaling and limits are `simulator.replaying`'s.
"""

from simulator.traffic.logs._log import Field, Log, read_log
from simulator.traffic.logs._mapping import FORMATS, KINDS, Format, Kind, LogMap
from simulator.traffic.logs._opening import stream_log
from simulator.traffic.logs._pipe import log_name
from simulator.traffic.logs._schema import map_schema
from simulator.traffic.logs._stream import ADDRESS, LogBatch, LogStream

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
