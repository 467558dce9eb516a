"""The truth: three stores, one contract."""
