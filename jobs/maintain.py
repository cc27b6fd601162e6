"""Run the upkeep of the tables, for timers and Spark's machines.

`python jobs/maintain.py ...` is `lbctl tables maintain ...`.
"""

import sys

from lb_stream.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["tables", "maintain"]
    main()
