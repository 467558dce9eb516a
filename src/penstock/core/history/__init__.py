"""What workflow code asked for, what was decided, and what a run has become."""
