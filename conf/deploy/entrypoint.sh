#!/bin/sh
# Starts what a machine or a container of this project runs, whatever the shell's own Python and Spark are:
#   balance [OPTION]...           the job with Spark in this container (LB_SPARK_MASTER, else two threads), as `lbctl balance`
#   submit [OPTION]... JOB [...]  spark-submit with the jars and settings of this project, for a Spark cluster
#   master [OPTION]...            a master of a Spark standalone cluster
#   worker [OPTION]... MASTER     a worker of it; what executors print and spill lies in SPARK_WORKER_DIR, else in .lb/worker
#   executor                      an executor of such a job; Spark on Kubernetes starts it with its SPARK_... variables
#   anything else                 is run as a command: lbctl monitor, python jobs/maintain.py, sh
set -eu
cd "$(dirname "$0")/../.."
home="$PWD"
PATH="$home/.venv/bin:$PATH"
SPARK_HOME="$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')"
export PATH SPARK_HOME PYSPARK_PYTHON="$home/.venv/bin/python" PYSPARK_DRIVER_PYTHON="$home/.venv/bin/python"
# The jars (those of s3 where they have been fetched), and conf for its log4j2.properties: without one Spark logs page after page for each batch.
jars="${LB_JARS_DIR:-$home/.jars}"
classes="$jars/spark/*:$jars/s3/*:$home/conf"
daemon() {
  SPARK_DAEMON_JAVA_OPTS="-Dlog4j2.configurationFile=file:$home/conf/log4j2.properties ${SPARK_DAEMON_JAVA_OPTS-}"
  SPARK_WORKER_DIR="${SPARK_WORKER_DIR-$home/.lb/worker}"
  export SPARK_DAEMON_JAVA_OPTS SPARK_WORKER_DIR
  exec "$SPARK_HOME/bin/spark-class" "$@"
}

case "${1:-balance}" in
  balance)
    [ $# -eq 0 ] || shift
    exec lbctl balance "$@"
    ;;
  submit)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --properties-file conf/spark-defaults.conf \
      --driver-class-path "$classes" --conf "spark.executor.extraClassPath=$classes" "$@"
    ;;
  master)
    shift
    daemon org.apache.spark.deploy.master.Master "$@"
    ;;
  worker)
    shift
    daemon org.apache.spark.deploy.worker.Worker "$@"
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
      -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*:$classes" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec "$@"
    ;;
esac
