"""Reading, searching and explaining runs, queues and workers."""
