"""Messages to and from runs: streams, message streams, and the contracts of workflow types."""
