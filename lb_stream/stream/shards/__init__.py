"""How clusters are cut into shards, and the files in which executors keep them."""
