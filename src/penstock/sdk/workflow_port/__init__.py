"""What workflow code asks of the engine that runs it."""
