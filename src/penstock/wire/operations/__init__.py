"""System operations, history export and journal."""
