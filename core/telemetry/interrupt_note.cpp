// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/interrupt_note.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>

namespace starling::telemetry {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

// A handler has no other way to what it prints, and may run on any thread.
std::atomic<const std::string*> note_shown = nullptr;
std::atomic<const std::string*> asking_note = nullptr;
static_assert(std::atomic<const std::string*>::is_always_lock_free);
std::array<struct sigaction, kSignals.size()> replaced;
std::atomic<bool> asks = false;
std::atomic<int> asked_by = 0;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// Only what POSIX allows in handlers.
void print(const std::string* note) {
  if (note == nullptr) return;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, note->data(), note->size());
}

void end_with_note(int number) {
  print(note_shown);
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void handle(int number) {
  if (asks.exchange(false)) {
    print(asking_note);
    asked_by = number;
  } else {
    end_with_note(number);
  }
}

}  // namespace

InterruptNote::InterruptNote(On on) {
  asks = on == On::kAsk;
  asked_by = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
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
  asking_note = nullptr;
}

void InterruptNote::set_asking(std::string note) {
  asking_note = &notes_.emplace_back(std::move(note));
}

void InterruptNote::set(std::string note) { note_shown = &notes_.emplace_back(std::move(note)); }

bool InterruptNote::asked() const { return asked_by != 0; }

void InterruptNote::end() const {
  const int number = asked_by;
  end_with_note(number);
  std::_Exit(128 + number);  // where the signal is blocked
}

}  // namespace starling::telemetry
