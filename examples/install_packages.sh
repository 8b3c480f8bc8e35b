#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what Starling needs on Debian 12 or newer and Ubuntu 24.04 or newer, and only what is
# missing: with everything there, apt is not called and no network is needed.
#   examples/install_packages.sh [build] [test] [data] [python]      (all by default)
# This is the one place where packages are named.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Where a Boost is unpacked when the system's own cannot be replaced; see install_boost.
boost_prefix=$root/build/boost-1.81

say() { printf 'packages: %s\n' "$*"; }
fail() { printf 'packages: %s\n' "$*" >&2; exit 1; }

installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = 'ii ' ]; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "cannot run '$*': it needs root, and sudo is not installed; run this script as root"
  fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@"; }

refresh_once() {
  [ -z "${refreshed:-}" ] || return 0
  refreshed=yes
  say 'refreshing the package lists'
  apt update || fail "apt-get update failed: check this machine's network and /etc/apt/sources.list"
}

# Installs those of its arguments that are missing; refuses to remove anything for it.
install() {
  local missing=() package
  for package; do installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  refresh_once
  say "installing: ${missing[*]}"
  apt install --no-install-recommends --no-remove -y "${missing[@]}" >/dev/null ||
    fail "apt-get could not install: ${missing[*]}"
}

# Debian 12 has Boost 1.74 by default, too old for us, and 1.81 beside it. The two development
# packages exclude each other, so where another one stands, 1.81 is unpacked below build/ and
# found there through Boost_ROOT.
old_boost() { [ "$distribution" = debian ] && [ "$version" = 12 ]; }

install_boost() {
  if ! old_boost; then
    install libboost-dev libboost-json-dev
  elif ! installed libboost1.74-dev; then
    install libboost1.81-dev libboost-json1.81-dev
  elif [ ! -e "$boost_prefix/usr/include/boost/asio.hpp" ]; then
    unpack_boost
  fi
}

unpack_boost() {
  local part=$boost_prefix.part package
  refresh_once
  say "libboost1.74-dev stays: unpacking Boost 1.81 into $boost_prefix"
  rm -rf "$part" && mkdir -p "$part/debs"
  (cd "$part/debs" && apt-get -qq download libboost1.81-dev libboost-json1.81-dev \
    libboost-json1.81.0 libboost-container1.81-dev libboost-container1.81.0 \
    libboost-system1.81-dev libboost-system1.81.0 2>/dev/null) ||
    fail 'apt-get could not download Boost 1.81 (libboost1.81-dev)'
  for package in "$part"/debs/*.deb; do dpkg-deb -x "$package" "$part"; done
  rm -r "$part/debs"
  mv "$part" "$boost_prefix"
}

install_clang() {
  if old_boost; then
    install clang-16 libclang-rt-16-dev clang-tidy-16 clang-format-16
  else
    install clang libclang-rt-dev clang-tidy clang-format
  fi
}

install_group() {
  case $1 in
    build)
      install g++ cmake ninja-build ccache pkg-config libssl-dev capnproto libcapnp-dev libeigen3-dev \
        libsqlite3-dev libcli11-dev libtomlplusplus-dev libfmt-dev libspdlog-dev libxxhash-dev \
        zlib1g-dev
      install_boost ;;
    test)
      install git libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev iproute2 \
        python3-pytest
      install_group python
      install_clang ;;
    python) install python3-numpy python3-venv python3-setuptools python3-wheel ;;
    data) install dataset-fashion-mnist ;;
    *) fail "unknown group '$1': there are build, test, data and python" ;;
  esac
}

supported() {
  case $distribution in
    debian) [ "${version%%.*}" -ge 12 ] ;;
    ubuntu) [ "${version%%.*}" -ge 24 ] ;;
    *) return 1 ;;
  esac
}

# shellcheck source=/dev/null
distribution=$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown}" || echo unknown)
# Debian's testing has no number yet; it is newer than any.
# shellcheck source=/dev/null
version=$(. /etc/os-release 2>/dev/null && echo "${VERSION_ID:-999}" || echo 0)

if ! supported; then
  say "this is $distribution $version, not Debian 12 or Ubuntu 24.04 or newer: nothing is" \
    'installed. Needed: g++ 12, CMake 3.25, Ninja, Boost 1.81 with JSON, OpenSSL 3, Cap'"'"'n Proto,' \
    'Eigen 3.4, SQLite 3, CLI11, toml++, fmt, spdlog, xxHash, zlib; for the tests GoogleTest,' \
    'Google Benchmark, RapidCheck, clang 16, NumPy and pytest; and the Fashion-MNIST files' \
    '(train-images-idx3-ubyte.gz and the other three) in /usr/share/datasets/fashion-mnist'
  exit 0
fi
[ $# -gt 0 ] || set -- build test data python
for group; do install_group "$group"; done
say "everything for $* is installed"
