"""`penstock simulate`."""
