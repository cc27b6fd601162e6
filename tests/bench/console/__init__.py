"""`make bench-console`: many viewers of one large cluster beside a job that writes.

What is measured: `--help`.
"""
