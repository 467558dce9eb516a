"""The SQLite library that the server links, so that limits and copies are made with the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import pysqlite3 as sqlite3
    except ImportError:
        import sqlite3

__all__ = ["sqlite3"]
