"""Going back in a history: where a run decided, and the state that it had there."""
