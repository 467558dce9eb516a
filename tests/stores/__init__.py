"""One contract test suite for all stores, and tests of what is particular to each."""
