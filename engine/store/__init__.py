"""Where the engine keeps its records: one protocol, in memory or in one SQLite file."""

from engine.store.memory import MemoryStore
from engine.store.protocol import Cursor, Document, LogFilter, Store, TokenFilter, cursor
from engine.store.sqlite import SqliteStore

__all__ = [
    "Cursor",
    "Document",
    "LogFilter",
    "MemoryStore",
    "SqliteStore",
    "Store",
    "TokenFilter",
    "cursor",
]
