#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lines of production code (.h, .cpp, .capnp; without tests/ and examples/) by folder, of each commit.
# usage: tests/bench/lines.sh [COMMIT ...]   (HEAD; two commits to compare before and after)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
(($#)) || set -- HEAD
for commit in "$@"; do
  git grep --count '' "$commit" -- '*.h' '*.cpp' '*.capnp' ':!tests' ':!examples' |
    sed 's/.*:\([^:]*:[0-9]*\)$/\1/' |
    awk -F'[:/]' -v commit="$commit" '{ folder = $1 (NF > 3 ? "/" $2 : ""); print folder "\t" commit "\t" $NF }'
done | awk -F'\t' -v commits="$*" '
  { lines[$1, $2] += $3; lines["all", $2] += $3; folders[$1] = folders["all"] = 1 }
  END {
    count = split(commits, names, " ")
    for (folder in folders) {
      row = sprintf("%-24s", folder)
      for (i = 1; i <= count; ++i) row = row sprintf(" %9d", lines[folder, names[i]])
      print row | "sort"
    }
  }'
