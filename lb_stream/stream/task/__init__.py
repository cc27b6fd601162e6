"""What a Spark task needs around its work: who it is, how long it may take, what kills it in a test."""
