#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds Starling with all its tests and runs them. From any directory;
# without network when everything is installed.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/run.sh [--preset release|dev|asan|tsan] [--set all|unit|system] [--jobs N] [--no-install]
                    [-- CTEST-ARGUMENT...]

  --preset NAME   how to build (default release); asan and tsan take clang unless CC and CXX are set
  --set NAME      which tests to build and run (default all): unit tests run in one process; system tests
                  start the programs, run the scripts and README, or take too long for sanitizers
  --jobs N        compilers and tests at a time (default: the processors there are)
  --no-install    install nothing, even if something is missing
  -- ...          handed to ctest, for example: tests/run.sh -- -R Architecture
TEXT
}

preset=release set=all jobs=$(nproc) install=yes
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    --set) set=${2:?--set needs a name}; shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    --no-install) install=no; shift ;;
    --help) usage; exit 0 ;;
    --) shift; break ;;
    *) usage >&2; exit 2 ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { printf '\n== %s\n' "$*"; }

if [ "$install" = yes ]; then
  say 'installing what is missing'
  examples/install_packages.sh build test data
fi
if [ -d build/boost-1.81/usr ]; then export Boost_ROOT=$PWD/build/boost-1.81/usr; fi

# g++ 12 miscompiles coroutines under the sanitizers, and clang before 16 fails on Asio's.
case $preset in asan | tsan)
  if [ -z "${CC:-}${CXX:-}" ]; then
    if command -v clang++-16 >/dev/null; then suffix=-16; else suffix=; fi
    export CC=clang$suffix CXX=clang++$suffix
  fi ;;
esac

# Warnings are errors with the compilers that the checks before landing use; newer ones know more.
case $("${CXX:-g++}" -dumpversion) in
  12 | 12.* | 16.*) strict=ON ;;
  *) strict=OFF ;;
esac

mkdir -p build
say "configuring: preset $preset, tests $set, build/$preset"
cmake --preset "$preset" -D STARLING_WERROR=$strict -D STARLING_TEST_SET="$set" \
  >"build/configure-$preset.log" 2>&1 || {
  cat "build/configure-$preset.log"
  exit 1
}
grep -E 'compiler identification|Build files' "build/configure-$preset.log" || true

say "building with $jobs jobs"
cmake --build --preset "$preset" --parallel "$jobs"

say "testing with $jobs jobs"
ctest --preset "$preset" --parallel "$jobs" "$@"
