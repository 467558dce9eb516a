"""Activities: their definitions, their context, and how workers run them."""
