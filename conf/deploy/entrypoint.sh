#!/bin/sh
# What a container of the image does:
#   balance [OPTION]...           the job with Spark in this container (LB_SPARK_MASTER, else two threads), as `lbctl balance`
#   submit [OPTION]... JOB [...]  spark-submit with the jars and settings of this project, for a Spark cluster
#   executor                      an executor of such a job; Spark on Kubernetes starts it with its SPARK_... variables
#   anything else                 is run as a command: lbctl monitor, python jobs/maintain.py, sh
set -eu
cd "$(dirname "$0")/../.."
home="$PWD"
PATH="$home/.venv/bin:$PATH"
SPARK_HOME="$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')"
export PATH SPARK_HOME PYSPARK_PYTHON="$home/.venv/bin/python" PYSPARK_DRIVER_PYTHON="$home/.venv/bin/python"

case "${1:-balance}" in
  balance)
    [ $# -eq 0 ] || shift
    exec lbctl balance "$@"
    ;;
  submit)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --properties-file conf/spark-defaults.conf --driver-class-path "$home/.jars/spark/*" "$@"
    ;;
  executor)
    # SPARK_JAVA_OPT_0, _1, ... are the JVM's options, one each.
    set --
    number=0
    while eval "option=\${SPARK_JAVA_OPT_$number-}" && [ -n "$option" ]; do
      set -- "$@" "$option"
      number=$((number + 1))
    done
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*:$home/.jars/spark/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec "$@"
    ;;
esac
