"""The demo behind `penstock demo`: a small shop whose worker and server are killed while it runs."""
