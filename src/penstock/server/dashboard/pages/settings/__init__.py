"""Dialogs of settings beyond a cap, a rate and a pause: of a queue, and caps on runs."""
