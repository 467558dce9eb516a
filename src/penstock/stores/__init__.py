"""The stores: SQLite and PostgreSQL, behind one contract (`penstock.ports.store`)."""
