// SPDX-License-Identifier: Apache-2.0
// What a coroutine of the network returns. g++ 12 miscompiles many forms: write
// `auto x = co_await f();` on a line of its own, with nothing but names in the awaited expression.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace starling::net {

template <class T>
using Async = boost::asio::awaitable<T>;

}  // namespace starling::net
