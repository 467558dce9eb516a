"""A minimal HTTP/1.1 client: requests are sent as a whole and responses are read as a whole."""
