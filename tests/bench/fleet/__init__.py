"""`make bench-fleet`: how the job grows with the number of clusters and of cores.

What is measured: `--help`.
"""
