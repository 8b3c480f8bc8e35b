# SPDX-License-Identifier: Apache-2.0
# For benchmarks that source it: accuracies of simulated networks, apart from runs that diverge and
# from those that could not be run at all.

# final_accuracy WORK PROGRAM FLAGS...: of `PROGRAM simulate FLAGS`, mean over the nodes, in per cent;
# "diverged" where a loss is no number. Any other failure is no result: WORK/error has its message,
# and the status is 1.
final_accuracy() {
  local work=$1 program=$2 log value
  shift 2
  log=$(mktemp "$work/log.XXXXXX")
  if "$program" simulate "$@" --threads 1 --format json >"$log" 2>"$log.err"; then
    value=$(grep -o '"eval_accuracy":[0-9.E+-]*' "$log" | tail -n 1 | cut -d : -f 2) || value=
    if [ -n "$value" ]; then
      awk "BEGIN { printf \"%.2f\n\", 100 * $value }"
      return
    fi
    echo "error: $program simulate $* printed no accuracy" >"$log.failed"
  elif grep -q '^error: the loss .*is not finite' "$log.err"; then
    echo diverged
    return
  else
    tail -n 1 "$log.err" >"$log.failed"
    [ -s "$log.failed" ] || echo "error: $program simulate $* failed without a message" >"$log.failed"
  fi
  mv "$log.failed" "$work/error"  # whole, also where several fail at once
  return 1
}

# start_cell WORK JOBS FILE COMMAND...: in the background once fewer than JOBS cells are at work; what it
# prints goes to FILE. Nothing begins after an error.
start_cell() {
  local work=$1 jobs=$2 file=$3
  shift 3
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  [ ! -e "$work/error" ] || return 0
  "$@" >"$file" &
}

# end_cells WORK: waits for all of them. Ends the script with the message of one that failed, for a
# table without it would say something else.
end_cells() {
  wait
  [ -e "$1/error" ] || return 0
  cat "$1/error" >&2
  exit 1
}
