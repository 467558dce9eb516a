"""Tasks as workers receive them."""
