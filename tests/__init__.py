"""What Penstock promises, as sentences that can be run."""
