"""The worker protocol of polls, and task queues and workers for operators."""
