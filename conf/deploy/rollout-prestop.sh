#!/bin/sh
# preStop of a broker's pod: holds the stop back until a rollout has emptied the broker.
#
#   rollout-prestop.sh BROKER [OPTION]...                  where lbctl is; BROKER: host:port; options
#                                                          of lbctl, such as --cluster eu-1
#   rollout-prestop.sh --serve FOLDER BROKER [OPTION]...   in a container beside the broker's, which
#                                                          has lbctl: does so whenever it is asked
#   rollout-prestop.sh --ask FOLDER                        in the broker's container: asks, waits
#
# A broker that no rollout waits for stops at once: none is on, it is none of its brokers, or it is
# empty or has been restarted already. Any other one is begun, in whatever order the rollout is, if
# its rules allow it: `lbctl rollout next BROKER`. Called again, it goes on waiting.
#
# LB_PRESTOP_S   seconds it may take (240): less than the pod's terminationGracePeriodSeconds
# LB_REFUSED_S   seconds to try again while the rollout refuses to begin the broker (120)
# LB_UNKNOWN_S   seconds to try again while lbctl can't read the rollout's state (30)
# LB_POLL_S      seconds between two looks (2); after refusals twice, four and five times as many
#
# The last line on stderr says why it ends. Exit codes: 0 the broker may stop; 1 it is not empty, or
# may not be begun, or lbctl failed; 2 wrong usage. Kubernetes stops the pod in any case, and shows
# a failure as FailedPreStopHook.
set -eu
limit_s=${LB_PRESTOP_S:-240} refused_s=${LB_REFUSED_S:-120}
unknown_s=${LB_UNKNOWN_S:-30} poll_s=${LB_POLL_S:-2}

usage() {
  echo "usage: $0 BROKER [OPTION]... | --serve FOLDER BROKER [OPTION]... | --ask FOLDER" >&2
  exit 2
}

tell() {
  echo "rollout-prestop: $*" >&2
}

seconds() {
  date +%s
}

# Prints the broker's phase. "none": no rollout is on, or it is none of its brokers. Fails if lbctl
# printed no state, with code 2 for wrong usage.
find_phase() {
  # Exit code 3 is "none is on", 1 also "it stands still": only what is printed tells.
  code=0
  printed=$(timeout "$unknown_s" lbctl rollout status --json "$@") || code=$?
  [ "$code" -ne 2 ] || return 2
  case $printed in
    *'"rollout": null'*) echo none; return ;;
    *'"brokers"'*) ;;
    *) return 1 ;;
  esac
  # One line for each JSON object; that of the broker has its phase.
  objects=$(printf '%s' "$printed" | tr '{}' '\n\n')
  entry=$(printf '%s' "$objects" | grep -F "\"broker\": \"$broker\"") || true
  [ -n "$entry" ] || { echo none; return; }
  printf '%s' "$entry" | sed -n 's/.*"phase": "\([a-z]*\)".*/\1/p'
}

# Runs a command whose stderr passes on at once. Prints its exit code and its last line.
run_and_relay() {
  { { "$@" 2>&1 >/dev/null; echo "exit code $?"; } || true; } | {
    last=
    while IFS= read -r line; do
      case $line in
        'exit code '*) echo "${line#exit code } $last" ;;
        ?*) echo "$line" >&2; last=$line ;;
      esac
    done
  }
}

wait_until_empty() {
  until_s=$(($(seconds) + limit_s))
  unknown_until_s=$(($(seconds) + unknown_s))
  refused_until_s='' looks=1 why=''
  while :; do
    left_s=$((until_s - $(seconds)))
    code=0
    found=$(find_phase "$@") || code=$?
    [ "$code" -ne 2 ] || return 2
    if [ "$code" -ne 0 ]; then
      if [ "$(seconds)" -ge "$unknown_until_s" ]; then
        tell "the state of the rollout is not known: $broker stops as it is"
        return 1
      fi
      sleep "$poll_s"
      continue
    fi
    unknown_until_s=$(($(seconds) + unknown_s))
    case $found in
      waiting) ;;
      draining) refused_until_s='' ;;
      none) tell "no rollout waits for $broker: it may stop"; return 0 ;;
      *) tell "$broker may stop ($found)"; return 0 ;;
    esac
    if [ "$left_s" -le 0 ]; then
      tell "$broker is not empty after $limit_s s ($found): it stops as it is${why:+. $why}"
      return 1
    fi
    if [ -n "$refused_until_s" ] && [ "$(seconds)" -ge "$refused_until_s" ]; then
      tell "$broker is not begun for $refused_s s: it stops as it is. $why"
      return 1
    fi
    # Begins this broker if it waits, and waits for it. Whether it was refused tells the next look.
    answer=$(run_and_relay timeout "$left_s" \
      lbctl rollout next "$broker" --wait --timeout "$left_s" "$@")
    code=${answer%% *} why=${answer#* }
    if [ "$code" -eq 0 ]; then
      tell "$broker may stop (empty)"
      return 0
    fi
    refused_until_s=${refused_until_s:-$(($(seconds) + refused_s))}
    for _ in $(seq "$looks"); do sleep "$poll_s"; done
    looks=$((looks * 2))
    [ "$looks" -le 5 ] || looks=5
  done
}

# Answers each request in FOLDER with the exit code and the last line, until the container is
# stopped.
serve() {
  cp "$0" "$folder/rollout-prestop.sh"
  trap 'exit 0' TERM INT
  while :; do
    if [ -e "$folder/ask" ]; then
      rm -f "$folder/ask"
      run_and_relay "$0" "$@" >"$folder/answer.new"
      mv "$folder/answer.new" "$folder/answer"
    fi
    sleep 1 &
    wait $!
  done
}

ask() {
  # Longer than the answer may take: the other side ends first.
  until_s=$(($(seconds) + limit_s + 10))
  rm -f "$folder/answer"
  : >"$folder/ask"
  until [ -e "$folder/answer" ]; do
    if [ "$(seconds)" -ge "$until_s" ]; then
      rm -f "$folder/ask"
      tell "no answer after $((limit_s + 10)) s"
      return 1
    fi
    sleep 1
  done
  answer=$(cat "$folder/answer")
  echo "${answer#* }" >&2
  return "${answer%% *}"
}

case ${1-} in
  --serve)
    [ $# -ge 3 ] || usage
    folder=$2
    shift 2
    serve "$@"
    ;;
  --ask)
    [ $# -eq 2 ] || usage
    folder=$2
    ask
    ;;
  '' | -*) usage ;;
  *)
    broker=$1
    shift
    wait_until_empty "$@"
    ;;
esac
