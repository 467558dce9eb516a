"""The same contract in dictionaries: what tests and simulations run on."""

from penstock.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
