"""One cluster's settings: what they come to, and who reads them."""
