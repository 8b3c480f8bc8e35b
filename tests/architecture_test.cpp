// SPDX-License-Identifier: Apache-2.0
// Holds every file of the tree against the rules of the house: which folder may include which, who
// may include which library, and how a file begins. Folder direction decays wherever no machine
// checks it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/source_text.h"

namespace starling {
namespace {

using starling::testing::SourceFile;
using starling::testing::Violation;

struct Folder {
  std::string_view name;
  std::vector<std::string_view> may_include;  // and what these may include
};

// "core" stands for every folder in it. Tests and examples may include all.
const std::vector<Folder>& folders() {
  static const std::vector<Folder> kTable = {
      {"core/base", {}},
      {"core/linalg", {"core/base"}},
      {"core/graph", {"core/linalg"}},
      {"core/data", {"core/linalg"}},
      {"core/model", {"core/data"}},
      {"core/train", {"core/model"}},
      {"core/update", {"core/model"}},
      {"core/aggregate", {"core/update"}},
      {"core/strategy", {"core/train", "core/aggregate"}},
      {"core/protocol", {"core/update"}},
      {"core/client", {"core/strategy", "core/protocol"}},
      {"core/compress", {"core/update"}},
      {"core/privacy", {"core/update"}},
      {"core/wire", {"core/protocol"}},
      {"core/identity", {"core/base"}},
      {"core/net", {"core/identity"}},
      {"core/link", {"core/net", "core/wire"}},
      {"core/issuer", {"core/link"}},
      {"core/enrol", {"core/net", "core/wire"}},
      {"core/store", {"core/update"}},
      {"core/config", {"core/base"}},
      {"core/sim", {"core/data"}},
      {"core/telemetry", {"core/base"}},
      {"core/report", {"core/telemetry", "core/graph"}},
      {"core/study", {"core/config", "core/data", "core/report"}},
      {"topologies", {"core/base", "core/linalg", "core/graph"}},
      {"gossip/algorithms", {"core", "topologies"}},
      {"gossip/membership", {"core"}},
      {"gossip/progress", {"core"}},
      {"gossip/fallback", {"core"}},
      {"gossip/collective", {"gossip/progress"}},
      {"gossip/training", {"gossip/algorithms"}},
      {"gossip/peer",
       {"gossip/training", "gossip/membership", "gossip/collective", "gossip/fallback"}},
      {"gossip/simulation", {"gossip/training", "gossip/peer"}},
      {"gossip/launch", {"gossip/simulation"}},
      {"gossip/tool", {"gossip/launch"}},
      {"edge_client", {"gossip/peer"}},
      {"coordinator/job", {"gossip/training", "gossip/fallback"}},
      {"coordinator/machine", {"coordinator/job"}},
      {"coordinator/rounds", {"coordinator/machine", "topologies"}},
      {"coordinator/simulation", {"coordinator/rounds"}},
      {"coordinator/service", {"coordinator/rounds"}},
      {"coordinator/commands", {"coordinator/service", "coordinator/simulation"}},
      {"coordinator", {"coordinator/commands"}},
  };
  return kTable;
}

struct Library {
  std::string_view name;
  std::vector<std::string_view> headers;  // how its headers begin
  // A folder with '/', a file, the name of a main file, or '*' and how a name ends.
  std::vector<std::string_view> users;
};

const std::vector<Library>& libraries() {
  static const std::vector<Library> kTable = {
      {"Boost.Asio",
       {"boost/asio", "boost/beast"},
       {"core/net/", "coordinator/", "edge_client/", "gossip/"}},
      {"Cap'n Proto", {"capnp/", "kj/", "core/wire/protocol.capnp.h"}, {"core/wire/"}},
      {"SQLite", {"sqlite3"}, {"core/store/"}},
      {"OpenSSL",
       {"openssl/"},
       {"core/identity/", "core/net/", "core/privacy/", "core/base/digest.cpp"}},
      {"Eigen", {"Eigen/", "unsupported/Eigen/"}, {"core/linalg/"}},
      {"Spectra", {"Spectra/"}, {"core/linalg/", "topologies/"}},
      {"oneDNN", {"dnnl", "oneapi/dnnl"}, {"core/model/", "core/train/"}},
      {"zlib", {"zlib.h"}, {"core/data/"}},
      {"xxHash", {"xxhash"}, {"core/base/digest.cpp"}},
      {"spdlog", {"spdlog/"}, {"core/base/log.cpp"}},
      {"toml++", {"toml++/", "toml.hpp"}, {"core/config/", "main.cpp"}},
      {"CLI11", {"CLI/"}, {"core/config/", "main.cpp", "*_command.cpp", "*commands.cpp"}},
  };
  return kTable;
}

struct Include {
  std::string path;
  std::size_t line = 0;
  bool quoted = false;
};

std::vector<Include> includes_of(const SourceFile& file) {
  std::vector<Include> includes;
  std::istringstream lines(testing::without_comments(file.text));
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    std::size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line[at] != '#') continue;
    at = line.find_first_not_of(" \t", at + 1);
    if (at == std::string::npos || line.compare(at, 7, "include") != 0) continue;
    std::size_t open = line.find_first_of("<\"", at);
    if (open == std::string::npos) continue;
    std::size_t close = line.find_first_of(">\"", open + 1);
    includes.push_back({line.substr(open + 1, close - open - 1), number, line[open] == '"'});
  }
  return includes;
}

// "core/net" of "core/net/tls.h", "coordinator" of "coordinator/main.cpp", "gossip" of
// "gossip/main.cpp", "" of a system header.
std::string folder_of(std::string_view path) {
  std::size_t end = path.find('/');
  if (end == std::string_view::npos) return "";
  const bool has_rooms =
      path.starts_with("core/") || path.starts_with("coordinator/") || path.starts_with("gossip/");
  const std::size_t room_end = path.find('/', end + 1);
  if (has_rooms && room_end != std::string_view::npos) end = room_end;
  return std::string(path.substr(0, end));
}

const Folder* find_folder(std::string_view name) {
  auto found = std::ranges::find(folders(), name, &Folder::name);
  return found == folders().end() ? nullptr : &*found;
}

void add_reachable(std::string_view name, std::set<std::string_view>& reachable) {
  if (name == "core") {
    for (const Folder& folder : folders()) {
      if (folder.name.starts_with("core/")) reachable.insert(folder.name);
    }
  } else if (const Folder* folder = find_folder(name); folder && reachable.insert(name).second) {
    for (std::string_view next : folder->may_include) add_reachable(next, reachable);
  }
}

bool is_unbound(std::string_view folder) { return folder == "tests" || folder == "examples"; }

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (std::string_view word : words) text.append(text.empty() ? "" : ", ").append(word);
  return text.empty() ? "nothing of Starling" : text;
}

std::vector<Violation> check_direction(const SourceFile& file) {
  std::string from = folder_of(file.path);
  if (is_unbound(from)) return {};
  const Folder* folder = find_folder(from);
  if (folder == nullptr) {
    return {{file.path, 1, "the folder is not in the table of tests/architecture_test.cpp"}};
  }
  std::set<std::string_view> reachable;
  add_reachable(from, reachable);
  std::vector<Violation> violations;
  for (const Include& include : includes_of(file)) {
    std::string to = folder_of(include.path);
    if (!include.quoted || reachable.contains(to)) continue;
    violations.push_back({file.path, include.line,
                          from + " may not include " + to + "; it may include " +
                              joined(folder->may_include) + ", and what these may"});
  }
  return violations;
}

bool may_use(std::string_view path, const Library& library) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  return std::ranges::any_of(library.users, [&](std::string_view user) {
    if (user.starts_with('*')) return name.ends_with(user.substr(1));
    return user.ends_with('/') ? path.starts_with(user) : user == path || user == name;
  });
}

std::vector<Violation> check_libraries(const SourceFile& file) {
  if (is_unbound(folder_of(file.path))) return {};
  std::vector<Violation> violations;
  for (const Include& include : includes_of(file)) {
    for (const Library& library : libraries()) {
      bool uses = std::ranges::any_of(
          library.headers, [&](std::string_view start) { return include.path.starts_with(start); });
      if (!uses || may_use(file.path, library)) continue;
      violations.push_back(
          {file.path, include.line,
           std::string(library.name) + " may be included only by " + joined(library.users)});
    }
  }
  return violations;
}

std::vector<Violation> check_paths(const SourceFile& file) {
  std::vector<Violation> violations;
  for (const Include& include : includes_of(file)) {
    std::string folder = folder_of(include.path);
    bool ours = is_unbound(folder) || find_folder(folder) != nullptr;
    if (include.path.find("../") != std::string::npos || (include.quoted && !ours)) {
      violations.push_back(
          {file.path, include.line, "a file of Starling is included by its path from the root"});
    } else if (!include.quoted && ours) {
      violations.push_back(
          {file.path, include.line, "a file of Starling is included in quotes, not in brackets"});
    }
  }
  return violations;
}

// `headers` holds the path of every header of the tree.
std::vector<Violation> check_own_header_first(const SourceFile& file,
                                              const std::set<std::string>& headers) {
  if (!file.path.ends_with(".cpp")) return {};
  std::string own = file.path.substr(0, file.path.size() - 4) + ".h";
  if (!headers.contains(own)) return {};
  std::vector<Include> includes = includes_of(file);
  if (!includes.empty() && includes.front().path == own) return {};
  return {{file.path, includes.empty() ? 1 : includes.front().line,
           "a source includes its own header first, so that each header compiles alone"}};
}

std::vector<Violation> check_beginning(const SourceFile& file) {
  std::string_view text = file.text;
  if (text.starts_with("#!")) text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  std::string_view first = text.substr(0, text.find('\n'));
  std::string_view comment = testing::is_cpp(file.path) ? "//" : "#";
  std::vector<Violation> violations;
  if (first != std::string(comment) + " SPDX-License-Identifier: Apache-2.0") {
    violations.push_back(
        {file.path, 1, "a file begins with \"SPDX-License-Identifier: Apache-2.0\" in a comment"});
  }
  if (testing::is_header(file.path) &&
      testing::without_comments(file.text).find("\n#pragma once\n") == std::string::npos) {
    violations.push_back({file.path, 1, "a header has #pragma once"});
  }
  return violations;
}

std::vector<Violation> check(const std::vector<SourceFile>& files) {
  std::set<std::string> headers;
  for (const SourceFile& file : files) {
    if (testing::is_header(file.path)) headers.insert(file.path);
  }
  std::vector<Violation> all;
  for (const SourceFile& file : files) {
    auto add = [&](std::vector<Violation> found) {
      std::ranges::move(found, std::back_inserter(all));
    };
    add(check_beginning(file));
    if (!testing::is_cpp(file.path)) continue;
    add(check_direction(file));
    add(check_libraries(file));
    add(check_paths(file));
    add(check_own_header_first(file, headers));
  }
  return all;
}

std::string sentences(const std::vector<Violation>& violations) {
  std::ostringstream text;
  for (const Violation& violation : violations) text << violation << '\n';
  return text.str();
}

constexpr std::string_view kSpdx = "// SPDX-License-Identifier: Apache-2.0\n";

// A source at `path` that includes `includes`, each written with its quotes or brackets.
SourceFile source(std::string path, std::initializer_list<std::string_view> includes) {
  SourceFile file{std::move(path), std::string(kSpdx)};
  for (std::string_view include : includes) file.text.append("#include ").append(include) += '\n';
  return file;
}

std::string verdict(const SourceFile& file) { return sentences(check({file})); }

TEST(Architecture, HoldsForTheWholeTree) {
  std::vector<SourceFile> files = testing::read_source_tree(testing::source_root());
  ASSERT_GT(files.size(), 20U) << "no sources found under " << testing::source_root();
  EXPECT_EQ(sentences(check(files)), "");
}

TEST(Architecture, EveryFolderInTheTableNamesFoldersInTheTable) {
  for (const Folder& folder : folders()) {
    for (std::string_view name : folder.may_include) {
      EXPECT_TRUE(name == "core" || find_folder(name) != nullptr) << folder.name << ": " << name;
    }
  }
}

TEST(Architecture, TheTableHasNoCycle) {
  for (const Folder& folder : folders()) {
    for (std::string_view name : folder.may_include) {
      std::set<std::string_view> reachable;
      add_reachable(name, reachable);
      EXPECT_FALSE(reachable.contains(folder.name)) << folder.name << " through " << name;
    }
  }
}

TEST(Architecture, IncludesAgainstTheDirectionAreFound) {
  EXPECT_EQ(verdict(source("core/data/a.cpp", {"<vector>", "\"core/train/optimizer.h\""})),
            "core/data/a.cpp:3: core/data may not include core/train; it may include core/linalg, "
            "and what these may\n");
  EXPECT_NE(verdict(source("core/base/a.cpp", {"\"core/linalg/sum.h\""})), "");
  EXPECT_NE(verdict(source("core/net/a.cpp", {"\"coordinator/machine/round_machine.h\""})), "");
  EXPECT_NE(verdict(source("topologies/a.cpp", {"\"core/data/dataset.h\""})), "");
  EXPECT_NE(verdict(source("edge_client/a.cpp", {"\"coordinator/machine/round_machine.h\""})), "");
  EXPECT_NE(verdict(source("coordinator/service/a.cpp", {"\"edge_client/edge_session.h\""})), "");
  EXPECT_NE(verdict(source("gossip/tool/a.cpp", {"\"coordinator/job/job.h\""})), "");
  EXPECT_NE(verdict(source("gossip/peer/a.cpp", {"\"gossip/simulation/simulation.h\""})), "");
  EXPECT_NE(verdict(source("coordinator/machine/a.cpp", {"\"coordinator/rounds/run_queue.h\""})),
            "");
  EXPECT_NE(verdict(source("core/wire/a.cpp", {"\"tests/support/source_text.h\""})), "");
}

TEST(Architecture, IncludesAlongTheDirectionPass) {
  EXPECT_EQ(verdict(source("core/strategy/a.cpp",
                           {"\"core/strategy/a.h\"", "\"core/train/optimizer.h\"",
                            "\"core/aggregate/aggregator.h\"", "\"core/base/error.h\""})),
            "");
  EXPECT_EQ(
      verdict(source("edge_client/a.cpp", {"\"core/net/tls.h\"", "\"gossip/peer/peer_node.h\""})),
      "");
  EXPECT_EQ(verdict(source("tests/core/a_test.cpp", {"\"coordinator/machine/round_machine.h\""})),
            "");
  EXPECT_EQ(verdict(source("examples/a.cpp", {"\"edge_client/edge_session.h\""})), "");
}

TEST(Architecture, AFolderOutsideTheTableIsFound) {
  EXPECT_NE(verdict(source("core/misc/a.cpp", {})), "");
  EXPECT_NE(verdict(source("tools/a.cpp", {})), "");
}

TEST(Architecture, AnIncludeInACommentDoesNotCount) {
  SourceFile file{"core/base/a.cpp", std::string(kSpdx) + "/*\n#include <sqlite3.h>\n*/\n"};
  EXPECT_EQ(verdict(file), "");
}

TEST(Architecture, LibrariesOutsideTheirFolderAreFound) {
  EXPECT_EQ(verdict(source("core/client/a.cpp", {"<boost/asio/ip/tcp.hpp>"})),
            "core/client/a.cpp:2: Boost.Asio may be included only by core/net/, coordinator/, "
            "edge_client/, gossip/\n");
  EXPECT_NE(verdict(source("core/update/a.cpp", {"<capnp/message.h>"})), "");
  EXPECT_NE(verdict(source("core/enrol/a.cpp", {"\"core/wire/protocol.capnp.h\""})), "");
  EXPECT_NE(verdict(source("coordinator/a.cpp", {"<sqlite3.h>"})), "");
  EXPECT_NE(verdict(source("core/base/bytes.cpp", {"<openssl/evp.h>"})), "");
  EXPECT_NE(verdict(source("core/model/a.cpp", {"<Eigen/Core>"})), "");
  EXPECT_NE(verdict(source("core/net/a.cpp", {"<spdlog/spdlog.h>"})), "");
  EXPECT_NE(verdict(source("coordinator/service.cpp", {"<CLI/CLI.hpp>"})), "");
  EXPECT_NE(verdict(source("core/data/a.cpp", {"<toml++/toml.h>"})), "");
}

TEST(Architecture, LibrariesWhereTheyBelongPass) {
  EXPECT_EQ(verdict(source("core/net/a.cpp", {"<boost/asio.hpp>", "<openssl/ssl.h>"})), "");
  EXPECT_EQ(verdict(source("core/base/digest.cpp", {"<openssl/evp.h>"})), "");
  EXPECT_EQ(verdict(source("core/wire/a.cpp", {"\"core/wire/protocol.capnp.h\""})), "");
  EXPECT_EQ(verdict(source("coordinator/main.cpp", {"<CLI/CLI.hpp>"})), "");
  EXPECT_EQ(verdict(source("coordinator/commands/token_commands.cpp", {"<CLI/App.hpp>"})), "");
  EXPECT_EQ(verdict(source("core/model/a.cpp", {"<boost/system/result.hpp>"})), "");
}

TEST(Architecture, PathsNotFromTheRootAreFound) {
  EXPECT_NE(verdict(source("core/net/a.cpp", {"\"../base/error.h\""})), "");
  EXPECT_NE(verdict(source("core/net/a.cpp", {"\"tls.h\""})), "");
  EXPECT_NE(verdict(source("tests/net/a_test.cpp", {"\"net/helper.h\""})), "");
  EXPECT_EQ(verdict(source("core/net/a.cpp", {"<core/base/error.h>"})),
            "core/net/a.cpp:2: a file of Starling is included in quotes, not in brackets\n");
}

TEST(Architecture, AnOwnHeaderNotFirstIsFound) {
  SourceFile header{"core/base/a.h", std::string(kSpdx) + "#pragma once\n"};
  SourceFile late = source("core/base/a.cpp", {"<vector>", "\"core/base/a.h\""});
  SourceFile first = source("core/base/a.cpp", {"\"core/base/a.h\"", "<vector>"});
  EXPECT_EQ(check({header, late}).size(), 1U);
  EXPECT_EQ(check({header, source("core/base/a.cpp", {})}).size(), 1U);
  EXPECT_EQ(sentences(check({header, first})), "");
}

TEST(Architecture, BeginningsAreHeldToTheRule) {
  EXPECT_NE(verdict({"core/base/a.h", std::string(kSpdx) + "int a;\n"}), "");
  EXPECT_NE(verdict({"core/base/a.h", std::string(kSpdx) + "// #pragma once\n"}), "");
  EXPECT_NE(verdict({"core/base/a.cpp", "// about\n" + std::string(kSpdx)}), "");
  EXPECT_NE(verdict({"core/CMakeLists.txt", "project(a)\n"}), "");
  EXPECT_NE(verdict({"tests/run.sh", "#!/usr/bin/env bash\nset -e\n"}), "");
  EXPECT_EQ(verdict({"core/CMakeLists.txt", "# SPDX-License-Identifier: Apache-2.0\n"}), "");
  EXPECT_EQ(verdict({"tests/run.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"}), "");
}

}  // namespace
}  // namespace starling
