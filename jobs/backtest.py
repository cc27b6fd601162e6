"""Run a back-test by spark-submit.

spark-submit --properties-file conf/spark-defaults.conf jobs/backtest.py --help
"""

import sys

from lb_stream.backtest.main import main

if __name__ == "__main__":
    sys.exit(main())
