"""One round of one cluster: `decide`, and the steps that it takes."""
