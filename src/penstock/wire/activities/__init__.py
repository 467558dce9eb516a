"""Progress of activities."""
