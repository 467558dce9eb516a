"""What `penstock.workflow` offers, by subject."""
