"""`lbctl demo`."""
