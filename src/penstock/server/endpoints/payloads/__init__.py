"""External payloads over HTTP: upload, fetch, and the test of the storage."""
