"""What a Spark task needs around its work: who calls it, who it is, how long it may take, what kills it in a test."""
