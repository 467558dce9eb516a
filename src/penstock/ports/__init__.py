"""What the engine asks of the world, as Protocols."""
