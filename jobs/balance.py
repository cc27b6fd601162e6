"""Run the balancer's job by spark-submit.

spark-submit --properties-file conf/spark-defaults.conf jobs/balance.py --help
"""

import sys

from lb_stream.job.balance import main

if __name__ == "__main__":
    sys.exit(main())
