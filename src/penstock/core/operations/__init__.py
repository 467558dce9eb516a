"""What operators read: limits with their usage, the journal, counts of runs."""
