"""A cluster as the tables of its job have it now, and what a strategy would do about that."""
