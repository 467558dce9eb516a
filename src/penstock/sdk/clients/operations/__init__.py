"""What a client does to runs besides starting, messaging and ending them."""
