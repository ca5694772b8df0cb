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

Names are imported lazily, on first use: a simulation needs the names of formats, not their readers.
"""

from typing import TYPE_CHECKING

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from simulator.logs._log_map import KINDS as KINDS
    from simulator.logs._log_map import Kind as Kind
    from simulator.logs._log_map import LogMap as LogMap
    from simulator.logs._open import stream_log as stream_log
    from simulator.logs._source import log_name as log_name
    from simulator.logs._stream import LogBatch as LogBatch
    from simulator.logs._stream import LogStream as LogStream
    from simulator.logs.formats import FORMATS as FORMATS
    from simulator.logs.formats import LogFormat as LogFormat

__getattr__, __dir__, __all__ = on_demand(__name__)
