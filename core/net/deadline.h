// SPDX-License-Identifier: Apache-2.0
// A limit for whatever is awaited. At the deadline the work is cancelled and awaited: every wait of
// this library ends with the error "cancelled" then, and the caller sees "deadline" instead.
#pragma once

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/net/event_loop.h"

namespace starling::net {

// True if `task` ended before `deadline`.
Async<bool> run_until(EventLoop& loop, TimePoint deadline, Async<void> task);

// `what` names the work in the sentence: "connecting to 10.0.0.1:7443".
template <class T>
Async<Result<T>> with_deadline(EventLoop& loop, TimePoint deadline, std::string what,
                               Async<Result<T>> work) {
  std::optional<Result<T>> result;
  auto task = store_result(std::move(work), result);
  auto in_time = co_await run_until(loop, deadline, std::move(task));
  if (!in_time) co_return timed_out("deadline", what + " took longer than its deadline");
  co_return std::move(*result);
}

}  // namespace starling::net
