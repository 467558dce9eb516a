"""Black-box tests: real processes and sockets, one suite for every topology."""
