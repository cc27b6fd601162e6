#!/bin/sh
# Restarts a broker's pod: a hook of `lbctl rollout run`, which calls it once the broker is empty.
#
#   lbctl rollout run --cluster eu-1 --hook 'conf/deploy/rollout-pod.sh {host} --namespace pulsar'
#
# HOST begins with the name of the pod, as pulsar-broker-2.pulsar-broker.pulsar.svc does. All other
# words are options of kubectl. What it does depends on the StatefulSet's updateStrategy:
#
# OnDelete        the pod is deleted, in any order. If it is being deleted already, nothing is done.
# RollingUpdate   the partition is lowered to the pod, so that Kubernetes replaces it. Only for a
#                 changed template, and from the last pod to the first.
#
# Exit codes: 0 the restart has begun; 1 kubectl failed, or this would restart other pods too, or
# none; 2 wrong usage.
set -eu

fail() {
  echo "rollout-pod: $2" >&2
  exit "$1"
}

usage="usage: $0 HOST [OPTION OF KUBECTL]..."
host=${1-}
case $host in '' | -*) fail 2 "$usage" ;; esac
shift
pod=${host%%[.:]*}
name=${pod%-*}
ordinal=${pod##*-}
case $ordinal in
  '' | *[!0-9]*) fail 2 "$host: expected a host that begins with a pod's name, such as broker-2" ;;
esac
[ "$name" != "$pod" ] || fail 2 "$host: expected a host that begins with a pod's name"

ask() {
  kubectl --request-timeout=30s "$@"
}

query='{.spec.updateStrategy.type},{.spec.updateStrategy.rollingUpdate.partition}'
query="$query,{.spec.replicas},{.spec.ordinals.start},{.status.currentRevision}"
query="$query,{.status.updateRevision}"
found=$(ask get statefulset "$name" -o "jsonpath=$query" "$@") || fail 1 "kubectl failed"
IFS=, read -r strategy partition replicas start current update <<END
$found
END

if [ "$strategy" = OnDelete ]; then
  query='{.metadata.deletionTimestamp}'
  found=$(ask get pod "$pod" --ignore-not-found -o "jsonpath=$query" "$@") || fail 1 "kubectl failed"
  if [ -n "$found" ]; then
    echo "$pod is being deleted since $found"
    exit 0
  fi
  ask delete pod "$pod" --ignore-not-found --wait=false "$@" || fail 1 "kubectl failed"
  exit 0
fi

# Kubernetes replaces the pods from the partition on, the last one first.
top=$((${start:-0} + ${replicas:-1}))
partition=${partition:-0}
[ "$partition" -lt "$top" ] || partition=$top
if [ "$partition" -le "$ordinal" ]; then
  echo "$pod is let go already: the partition of $name is $partition"
  exit 0
fi
if [ "$partition" -ne $((ordinal + 1)) ]; then
  fail 1 "the partition of $name is $partition: with $ordinal Kubernetes would also restart \
$name-$((partition - 1)). Start the rollout with --in-order, the last pod first"
fi
if [ "$current" = "$update" ]; then
  fail 1 "the template of $name has not changed, so no pod would be replaced: \
kubectl rollout restart statefulset/$name"
fi
patch="{\"spec\":{\"updateStrategy\":{\"rollingUpdate\":{\"partition\":$ordinal}}}}"
ask patch statefulset "$name" --type merge -p "$patch" "$@" || fail 1 "kubectl failed"
