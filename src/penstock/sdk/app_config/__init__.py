"""Configuration of an app: its queues, its caps, and how its workers claim tasks."""
