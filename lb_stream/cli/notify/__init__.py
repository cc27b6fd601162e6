"""`lbctl notify`: tells people of troubles."""
