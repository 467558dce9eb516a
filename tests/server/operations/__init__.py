"""System operations over HTTP."""
