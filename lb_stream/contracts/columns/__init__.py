"""What columns of tables mean, and which of them are times."""
