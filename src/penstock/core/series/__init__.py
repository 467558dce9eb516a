"""The time series of queues that a server keeps for charts."""
