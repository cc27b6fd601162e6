"""What a cluster has carried over time: out of the tables, or out of a file of reports."""
