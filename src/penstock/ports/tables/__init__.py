"""The tables of a transaction (`ports.store.Tx`), by subject."""
