"""What `penstock demo` plays: a small shop, its workers and its server, and what befalls them."""
