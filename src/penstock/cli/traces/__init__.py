"""`penstock trace`: record a load from a server's journal, and look at it."""
