"""External storage: a directory, or an S3-compatible service."""
