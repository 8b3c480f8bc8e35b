// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/interrupt_note.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace starling::telemetry {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

// A handler has no other way to what it prints, and may run on any thread.
std::atomic<const std::string*> note_shown = nullptr;
static_assert(std::atomic<const std::string*>::is_always_lock_free);
std::array<struct sigaction, kSignals.size()> replaced;

// Only what POSIX allows in handlers.
void end_with_note(int number) {
  if (const std::string* note = note_shown) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, note->data(), note->size());
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

InterruptNote::InterruptNote() {
  struct sigaction action {};
  action.sa_handler = end_with_note;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &replaced[i]);
    if (replaced[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptNote::~InterruptNote() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &replaced[i], nullptr);
  }
  note_shown = nullptr;
}

void InterruptNote::set(std::string note) { note_shown = &notes_.emplace_back(std::move(note)); }

}  // namespace starling::telemetry
