"""`penstock simulate`: rehearse a load, and a change of limits in it."""
