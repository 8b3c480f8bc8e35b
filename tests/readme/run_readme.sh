#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the commands of README.md as a reader would, in an empty directory. A block of commands is
# preceded by a comment: "run", "run, token from the output" or "run in the background until: TEXT".
# usage: run_readme.sh SOURCE-DIRECTORY DIRECTORY-OF-PROGRAMS
set -euo pipefail

source_directory=$1
export PATH=$2:$PATH
work=$(mktemp -d)
background=()

finish() {
  local status=$?
  trap - EXIT
  if [ ${#background[@]} -gt 0 ]; then
    kill "${background[@]}" 2>/dev/null || true
    wait "${background[@]}" 2>/dev/null || true
  fi
  if [ $status -ne 0 ]; then
    for log in "$work"/*.log; do printf -- '--- %s\n' "$log"; tail -n 20 "$log"; done
  fi
  rm -rf "$work"
  exit $status
}
trap finish EXIT

# Another port than the README's, which may be taken on a machine that runs tests.
port=$((20000 + RANDOM % 12000))
token=
blocks=0

# As soon as `log` says `text`; at most a minute.
wait_for() {
  local log=$1 text=$2
  timeout 60 grep -q -m 1 -F -- "$text" <(tail -n +1 -F "$log" 2>/dev/null) || {
    echo "the program did not say '$text' within a minute" >&2
    return 1
  }
}

run_block() {
  local how=$1 commands=$2 log words
  blocks=$((blocks + 1))
  commands=${commands//127.0.0.1:7443/127.0.0.1:$port}
  commands=${commands//STJ1-.../$token}
  printf '\n== block %s (%s)\n%s\n' "$blocks" "$how" "$commands"
  case $how in
    'run')
      eval "$commands" ;;
    'run, token from the output')
      log=$work/token.log
      eval "$commands" >"$log"  # not in a subshell: exports stay for the next blocks
      cat "$log"
      token=$(grep -o 'STJ1-[A-Z2-7]*' "$log" | head -n 1) ;;
    'run in the background until: '*)
      log=$work/background-$blocks.log
      : >"$log"
      read -r -a words <<<"$commands"
      "${words[@]}" >"$log" 2>&1 &
      background+=($!)
      wait_for "$log" "${how#run in the background until: }" ;;
    *) echo "unknown marker: $how" >&2; return 1 ;;
  esac
}

mkdir "$work/reader"
cd "$work/reader"

marker= inside=no commands=
while IFS= read -r line <&3; do
  if [[ $line =~ ^'<!-- '(run.*)' -->'$ ]]; then
    marker=${BASH_REMATCH[1]}
  elif [ "$inside" = no ] && [ "$line" = '```sh' ]; then
    inside=yes commands=
  elif [ "$inside" = yes ] && [ "$line" = '```' ]; then
    inside=no
    [ -z "$marker" ] || run_block "$marker" "$commands"
    marker=
  elif [ "$inside" = yes ]; then
    commands+=$line$'\n'
  fi
done 3<"$source_directory/README.md"

[ "$blocks" -ge 10 ] || { echo "only $blocks blocks of commands were found in README.md" >&2; exit 1; }
[ -s model.safetensors ] && [ -s study/run.json ] && [ -s study/report.html ]
for round in 0 1 2 3 4 5; do
  [ -s "study/models/$round.safetensors" ] || { echo "study/models lacks round $round" >&2; exit 1; }
done
[ -s comparison.html ] && [ -s base-2/metrics.jsonl ] && [ -s base-2/report.html ]
grep -q 'alt="Graph of ring' comparison.html || { echo 'comparison.html has no graph' >&2; exit 1; }
[ "$(ls grid/*/summary.json | wc -l)" -eq 8 ] && [ -s grid/report.html ]
[ -s grid/curves/accuracy-by-step.csv ] && [ -s grid/curves/accuracy-by-step.svg ]
printf '\n%s blocks of README.md ran\n' "$blocks"
