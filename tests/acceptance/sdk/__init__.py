"""The public SDK as client and worker."""
