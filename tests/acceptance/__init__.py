"""The whole thing, from outside: real processes, real sockets, one suite for every topology."""
