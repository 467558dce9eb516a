"""HTTP/1.1 as the SDK needs it: requests that are whole when they are sent, and answers that are read as a whole."""
