"""Access logs as columns: combined and common format, CSV, JSON lines, Parquet, frames; gzip too.

    log = read_log("access.log.gz", map=LogMap.read("map.toml"))
    log.t_ns, log.fields["path"].names, log.unparsed, log.unparsed_first

Log text is hostile: a line that does not parse is counted and named by number and reason, never
quoted, and stops nothing. Key texts stay in `log.fields["key"].names`; who writes anything out
replaces them by labels first. Ordering, time scaling and limits are `simulator.replaying`'s.
"""

from simulator.traffic.logs._log import ADDRESS, Field, Log, read_log
from simulator.traffic.logs._mapping import FORMATS, KINDS, Format, Kind, LogMap
from simulator.traffic.logs._schema import map_schema

__all__ = [
    "ADDRESS",
    "FORMATS",
    "KINDS",
    "Field",
    "Format",
    "Kind",
    "Log",
    "LogMap",
    "map_schema",
    "read_log",
]
