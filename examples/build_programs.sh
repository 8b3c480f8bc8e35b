# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For the scripts of this folder, which read it with `root` set.

say() { printf '\n== %s\n' "$*"; }

refuse() {
  printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2
  exit 2
}

# program_directory DIR PROGRAM...: DIR as an absolute path; refused where it lacks one of them.
program_directory() {
  local directory=$1 program
  shift
  [ -d "$directory" ] || refuse "there is no directory '$directory'"
  for program in "$@"; do
    [ -x "$directory/$program" ] ||
      refuse "no $program in '$directory'; build it, or leave --programs out"
  done
  (cd "$directory" && pwd)
}

# build_programs TARGET...: installs what is missing, builds, and sets `programs`.
build_programs() {
  say 'installing what is missing'
  "$root/examples/install_packages.sh" build data
  if [ -d "$root/build/boost-1.81/usr" ]; then export Boost_ROOT=$root/build/boost-1.81/usr; fi
  say "building $* (build/quickstart)"
  cmake -S "$root" -B "$root/build/quickstart" -G Ninja -D CMAKE_BUILD_TYPE=Release \
    -D STARLING_TESTS=OFF >/dev/null
  cmake --build "$root/build/quickstart" --target "$@"
  programs=$root/build/quickstart/bin
}
