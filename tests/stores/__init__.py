"""One contract, every store: a store is finished when it passes."""
