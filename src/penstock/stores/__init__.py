"""The stores: SQLite, PostgreSQL and memory, behind one contract (`penstock.ports.store`)."""
