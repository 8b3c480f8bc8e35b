// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace starling::testing {

// Wall time less the share of it in which a hypervisor gave this machine's processors to others
// (`steal` in proc(5), /proc/stat): a promise in seconds is one of the machine's own.
class MachineStopwatch {
 public:
  double seconds() const {
    const Ticks now = ticks();
    const double elapsed = std::chrono::duration<double>(now.at - begin_.at).count();
    const double all = static_cast<double>(now.all - begin_.all);
    if (all <= 0) return elapsed;
    return elapsed * (1 - static_cast<double>(now.stolen - begin_.stolen) / all);
  }

 private:
  struct Ticks {
    std::chrono::steady_clock::time_point at;
    std::uint64_t all = 0;
    std::uint64_t stolen = 0;
  };
  // The first line: "cpu" and then user, nice, system, idle, iowait, irq, softirq, steal.
  static Ticks ticks() {
    Ticks ticks{.at = std::chrono::steady_clock::now()};
    std::ifstream file("/proc/stat");
    std::string line;
    std::getline(file, line);
    std::istringstream fields(line.substr(line.find(' ') + 1));
    for (int i = 0; i < 8 && fields >> ticks.stolen; ++i) ticks.all += ticks.stolen;
    return ticks;
  }

  Ticks begin_ = ticks();
};

}  // namespace starling::testing
