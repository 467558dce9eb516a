"""Engine operations on an ephemeral store and a manual clock."""
