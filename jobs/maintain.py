"""Upkeep of the tables: `python jobs/maintain.py ...` is `lbctl tables maintain ...`, for timers
and Spark's machines."""

import sys

from lb_stream.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["tables", "maintain"]
    main()
