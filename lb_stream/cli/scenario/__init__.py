"""`lbctl scenario`: scenarios for the simulator, made, checked, shown."""
