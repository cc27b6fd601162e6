"""Where pages have their figures from: the tables, the topics, and what is computed beside them; each shared by all who look."""
