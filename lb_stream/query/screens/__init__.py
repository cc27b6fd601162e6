"""What the pages of the console show: figures out of open tables, a page of a long list at a time."""
