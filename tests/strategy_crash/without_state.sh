#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that strategy_crash_test notices a lost state: in a copy of the tree, a restarted coordinator
# takes the strategy's first state instead of the committed one, then restarted clients forget theirs.
# Each strategy that has such a state must fail, the others must not. Prints the tests that failed by
# scenario. (Some ten minutes; the copy is built with ccache where it is installed.)
# usage: tests/strategy_crash/without_state.sh [DIRECTORY-FOR-THE-COPY]
#   TESTS: a filter of GoogleTest, for a part of the tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
copy=${1:-$(mktemp -d)}
[[ ${1:-} ]] || trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy"
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$copy"
cd "$copy"
cmake --preset release -DSTARLING_TEST_SET=all >configure.log

build() { nice cmake --build build/release --target strategy_crash_test >build.log; }

# Edits one line of FILE, builds, tests, and undoes the edit. NAMES: an extended regular expression
# of the scenarios that must fail.
expect_failures() {  # WHAT FILE SED-SCRIPT NAMES
  echo "== $1"
  cp "$2" unchanged
  sed -i "$3" "$2"
  if cmp -s "$2" unchanged; then
    echo "$2 has no such line any more: mend $0" >&2
    exit 1
  fi
  build
  nice build/release/bin/strategy_crash_test --gtest_filter="${TESTS:-Strategies/*}" >test.log || true
  cp unchanged "$2"
  if ! grep -q 'ran\. (' test.log; then
    echo "the test did not come to its end:" >&2
    tail -n 5 test.log >&2
    exit 1
  fi
  # "[       OK ] Strategies/SUITE.TEST/SCENARIO (5 ms)"; failed ones say their parameter, too.
  sed -nE 's#^\[ *(OK|FAILED) *\] [^ ,]*/([A-Za-z]+)[ ,].*\([0-9]+ ms\)$#\2 \1#p' test.log |
    awk -v must="^(Small)?($4)" '
      { ++tests[$1]; failed[$1] += $2 == "FAILED" }
      END {
        for (name in tests) {
          printf "%-24s %d of %d tests failed\n", name, failed[name], tests[name] | "sort"
          if ((failed[name] > 0) != (name ~ must)) { wrong = wrong " " name }
        }
        close("sort")
        if (wrong) { print "not as expected:" wrong; exit 1 }
      }'
}

expect_failures "the server's state is not in what a restart goes on from" \
  coordinator/rounds/run_loader.cpp \
  's/^  STARLING_ASSIGN(strategy::StateSnapshot state, load_state.*/&\n  if (state != nullptr) state = context->initial_position(run.id, run.seed).state;/' \
  'FedAvgM|FedAdagrad|FedAdam|FedYogi|Scaffold|FedDyn|DiLoCo'
expect_failures "the clients' states are not in what a restart goes on from" \
  core/client/client_machine.cpp \
  '/leftovers.states) remember/d' \
  'Scaffold|FedDyn|DiLoCo'
