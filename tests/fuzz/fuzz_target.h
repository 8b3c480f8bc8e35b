// SPDX-License-Identifier: Apache-2.0
// What each fuzzer defines and libFuzzer or replay_main.cpp calls: takes any bytes, returns 0, and
// aborts where something that must hold does not.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // NOLINT
