"""How activities run: what their functions are, what they know, and what becomes of them."""
