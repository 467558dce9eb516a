"""What the tests stand on: real servers and the ways to disturb them."""
