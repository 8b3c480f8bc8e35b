// SPDX-License-Identifier: Apache-2.0
// `starling-coordinator simulate JOB.toml --clients N`: flags, progress and what is printed.
#pragma once

#include <iosfwd>
#include <memory>

namespace CLI {
class App;
}

namespace starling::coordinator {

class SimulateCommand {
 public:
  // Adds the command to `program`, which must be parsed while this object lives.
  explicit SimulateCommand(CLI::App& program);
  ~SimulateCommand();

  bool chosen() const;
  // Returns the exit code. Results go to `out`, progress and errors to `err`.
  int run(std::ostream& out, std::ostream& err);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace starling::coordinator
