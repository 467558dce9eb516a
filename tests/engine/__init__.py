"""Engine operations over the memory store and a manual clock."""
