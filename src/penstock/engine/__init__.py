"""The use cases: load, ask the core, record, wake."""
