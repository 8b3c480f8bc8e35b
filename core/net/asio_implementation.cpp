// SPDX-License-Identifier: Apache-2.0
// The one place where Asio's own functions are compiled; every other file sees declarations only.
#include <boost/asio/impl/src.hpp>
