"""`lbctl simulate`."""
