"""What a broker itself computes before it reports: its load, its top bundles, and whether there is anything new to say."""
