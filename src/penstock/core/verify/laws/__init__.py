"""One law per module: what must hold over the journal and the observations of clients."""
