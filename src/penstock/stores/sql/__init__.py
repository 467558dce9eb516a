"""One SQL store for both databases: a module per noun, beside its statements."""
