// SPDX-License-Identifier: Apache-2.0
// Bare TLS over loopback, to measure other transfers against in the same run: blocking OpenSSL, the
// cipher that Starling prefers, one thread at each end.
#pragma once

#include <cstddef>
#include <ctime>
#include <thread>

#include "core/identity/certificate.h"

namespace starling::testing {

struct Figures {
  double wall = 0;
  double send = 0;     // processor seconds of the sending thread
  double receive = 0;  // and of the receiving one
};

inline double seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Runs both ends and measures each thread from its first to its last line.
template <class Send, class Receive>
Figures measure(Send send, Receive receive) {
  Figures figures;
  const double start = seconds(CLOCK_MONOTONIC);
  std::thread receiver([&] {
    receive();
    figures.receive = seconds(CLOCK_THREAD_CPUTIME_ID);
  });
  std::thread sender([&] {
    send();
    figures.send = seconds(CLOCK_THREAD_CPUTIME_ID);
  });
  sender.join();
  receiver.join();
  figures.wall = seconds(CLOCK_MONOTONIC) - start;
  return figures;
}

// `bytes` in pieces of 64 KiB, one way. Requires: a whole number of them.
Figures bare_tls(const identity::Credentials& client, const identity::Credentials& server,
                 std::size_t bytes);

}  // namespace starling::testing
