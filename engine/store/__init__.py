"""Where the engine keeps its records: one protocol, in memory or in one SQLite file."""

from engine.store.memory import MemoryStore
from engine.store.protocol import Cursor, Document, LogFilter, Store, TokenFilter, cursor
from engine.store.sqlite import SqliteStore
from engine.store.sqlite_file import back_up

__all__ = [
    "Cursor",
    "Document",
    "LogFilter",
    "MemoryStore",
    "SqliteStore",
    "Store",
    "TokenFilter",
    "back_up",
    "cursor",
]
