"""External payloads: storing and fetching their bytes, accepting references, and deleting what nothing needs."""
