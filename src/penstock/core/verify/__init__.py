"""Whether promises were kept: laws over what the server wrote down and what its clients saw."""
