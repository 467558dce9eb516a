"""The store contract in dictionaries, for tests and as the reference model of the SQL stores."""

from penstock.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
