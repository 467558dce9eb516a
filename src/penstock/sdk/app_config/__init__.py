"""What an app is configured with: its queues, its caps, how its workers claim tasks."""
