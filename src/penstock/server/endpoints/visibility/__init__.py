"""Lists, explanations, debug views and queue metrics."""
