"""`lbctl report`."""
