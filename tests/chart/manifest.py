"""`make manifest`: write conf/deploy/kubernetes.yaml from the chart, for those without helm.

It names the sum of the chart's files, by which a test without helm sees that it is up to date.
"""

from __future__ import annotations

import re
import sys

from tests.chart.charts import chart_sum, render
from tests.chart.programs import HELM, PROJECT

MANIFEST = PROJECT / "conf" / "deploy" / "kubernetes.yaml"
KAFKA = "kafka-bootstrap.kafka:9092"
HEAD = """\
# The job with a standby, the console and upkeep, without helm. `make manifest` writes this file; change the chart instead.
# Chart: SHA-256 {sum}
#   kubectl create namespace lb-stream && kubectl apply -n lb-stream -f conf/deploy/kubernetes.yaml
# To change before: the image's name (three places), Kafka's address, the storage class (two pods of the job need ReadWriteMany).
"""
HELMS_OWN = re.compile(
    r"^ *(?:app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n|^# Source: .*\n", re.MULTILINE
)


def manifest() -> str:
    """Return the plain manifest: what helm makes of the default values."""
    text = render(HELM[-1], "--set", f"kafka.bootstrapServers={KAFKA}", "--skip-tests")
    body = re.sub(r"\n+---", "\n---", HELMS_OWN.sub("", text))
    return HEAD.format(sum=chart_sum()) + body.removeprefix("---\n")


def main() -> int:
    """Write the manifest, and return the exit code."""
    MANIFEST.write_text(manifest())
    print(f"{MANIFEST.relative_to(PROJECT)} written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
