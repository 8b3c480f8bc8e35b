// SPDX-License-Identifier: Apache-2.0
#include "core/linalg/kernels.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace starling::linalg {

#if defined(__x86_64__)
namespace v2 {
extern const Kernels kKernels;
}
namespace v3 {
extern const Kernels kKernels;
}
namespace v4 {
extern const Kernels kKernels;
}
#else
namespace generic {
extern const Kernels kKernels;
}
#endif

namespace {

struct Candidate {
  const Kernels* kernels;
  bool supported;
};

// The best first.
std::vector<Candidate> candidates() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool has_v4 = has_v3 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return {{&v4::kKernels, has_v4},
          {&v3::kKernels, has_v3},
          {&v2::kKernels, __builtin_cpu_supports("sse4.2") != 0}};
#else
  return {{&generic::kKernels, true}};
#endif
}

}  // namespace

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> result;
  for (const Candidate& candidate : candidates()) {
    if (candidate.supported) result.push_back(candidate.kernels);
  }
  return result;
}

Result<const Kernels*> find_kernels(std::string_view name) {
  std::string names;
  for (const Candidate& candidate : candidates()) {
    if (candidate.supported && (name.empty() || name == candidate.kernels->name)) {
      return candidate.kernels;
    }
    if (name == candidate.kernels->name) {
      return unsupported("unsupported-isa", "this processor cannot run the instruction set " +
                                                std::string(name) + "; leave STARLING_ISA unset");
    }
    names += std::string(names.empty() ? "" : ", ") + candidate.kernels->name;
  }
  if (name.empty()) {
    return unsupported("unsupported-isa", "this processor lacks SSE4.2, which Starling needs");
  }
  return wrong_setting("unknown-isa", "there is no instruction set \"" + std::string(name) +
                                          "\" here; STARLING_ISA takes " + names);
}

const Kernels& default_kernels() {
  static const Kernels* const kChosen = [] {
    const char* const name = std::getenv("STARLING_ISA");
    const auto found = find_kernels(name == nullptr ? "" : name);
    if (found) return *found;
    std::fprintf(stderr, "starling: %s\n", found.error().message().c_str());
    std::exit(2);
  }();
  return *kChosen;
}

}  // namespace starling::linalg
