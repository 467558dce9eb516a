"""The tables in SQL, for both databases: a module per table or subject, beside its statements."""
