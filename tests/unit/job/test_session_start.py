"""A session that starts in a thread. Without Spark."""

import subprocess
import sys

PROGRAM = """
import sys
from unittest.mock import Mock
from lb_stream.contracts.settings import Settings
from lb_stream.job import balance
balance.Thread = Mock(side_effect=lambda **_: found.update(sys.modules) or Mock())
found = {}
balance.start_session(Settings())
from lb_stream.job import leading, session
from pyspark.sql.classic import dataframe
print(sorted(name for name in set(sys.modules) - set(found) if name.startswith("pyspark")))
"""


def test_pyspark_is_imported_before_a_second_thread_could_import_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
