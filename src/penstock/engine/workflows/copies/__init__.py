"""Runs that are made from other ones: redriven, rerun, reset and forked."""
