// SPDX-License-Identifier: Apache-2.0
// A coordinator as a real process in a directory of its own, and the edges that joined it.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/temporary_directory.h"

namespace starling::testing {

namespace json = boost::json;

inline const std::string kPrograms = (build_root() / "bin/").string();

class FederationFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string listen = "127.0.0.1:" + std::to_string(free_port());
    const Finished made = run({kPrograms + "starling-coordinator", "init", state(), "--federation",
                               "e2e", "--listen", listen, "--name", "127.0.0.1"});
    ASSERT_EQ(made.exit_code, 0) << made.output;
    serve();
  }

  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  std::string state() const { return path("coordinator"); }

  void serve() {
    service_ = std::make_unique<Process>(
        std::vector<std::string>{kPrograms + "starling-coordinator", "serve", state()});
    ASSERT_TRUE(service_->wait_for("listens on")) << service_->output();
  }
  Finished coordinator(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), kPrograms + "starling-coordinator");
    arguments.insert(arguments.end(), {"--state", state()});
    return run(arguments);
  }
  json::value coordinator_json(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--format", "json"});
    const Finished done = coordinator(std::move(arguments));
    EXPECT_EQ(done.exit_code, 0) << done.output;
    boost::system::error_code code;
    json::value value = json::parse(done.output, code);
    EXPECT_FALSE(code) << done.output;
    return value;
  }
  // `options`: further arguments of `token new`.
  void join(const std::string& name, const std::vector<std::string>& options = {}) {
    std::vector<std::string> arguments{"token", "new", name};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const json::value token = coordinator_json(arguments);
    const Finished joined = run({kPrograms + "starling-edge", "join",
                                 token.at("token").as_string().c_str(), "--state", path(name)});
    ASSERT_EQ(joined.exit_code, 0) << joined.output;
  }
  TemporaryDirectory directory_;
  std::unique_ptr<Process> service_;
  std::vector<std::unique_ptr<Process>> edges_;
};

}  // namespace starling::testing
