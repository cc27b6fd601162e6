"""`lbctl monitor`."""
