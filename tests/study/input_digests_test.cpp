// SPDX-License-Identifier: Apache-2.0
#include "core/study/input_digests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace starling::study {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class InputDigestsTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }
  // "" where the setting names nothing that can be read.
  static std::string digest(const std::string& key, const std::string& value) {
    const Settings found = InputDigests().of({{key, value}});
    return found.empty() ? "" : found.front().second;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(InputDigestsTest, AreOfFilesThatSettingsName) {
  write("a.csv", "1");
  const Settings settings = {{"seed", "1"},
                             {"network.links", path("a.csv")},
                             {"data.dataset", "csv:" + path("a.csv")},
                             {"topology.spec", "file:" + path("a.csv") + ",directed=true"},
                             {"model.initial", "spread=1"},
                             {"nodes.speeds", path("none.csv")},
                             {"evaluate.dataset", "synthetic:rows=9"}};
  const std::string one = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
  EXPECT_THAT(InputDigests().of(settings),
              ElementsAre(Pair("network.links", one), Pair("data.dataset", one),
                          Pair("topology.spec", one)));
}

TEST_F(InputDigestsTest, OfADirectoryAreOfNamesAndContents) {
  const std::string rows = path("rows");
  std::filesystem::create_directories(rows + "/inner");
  write("rows/images", "12");
  write("rows/labels", "3");
  const std::string before = digest("data.dataset", "idx:" + rows + ":test");
  ASSERT_EQ(before.size(), 64U);
  EXPECT_EQ(digest("data.dataset", "idx:" + rows), before) << "of all splits";
  write("rows/inner/notes", "4");
  EXPECT_EQ(digest("data.dataset", "idx:" + rows), before);
  write("rows/images", "1");
  write("rows/labels", "23");
  EXPECT_NE(digest("data.dataset", "idx:" + rows), before);
  write("rows/images", "12");
  write("rows/labels", "3");
  EXPECT_EQ(digest("data.dataset", "idx:" + rows), before);
  std::filesystem::rename(rows + "/labels", rows + "/label");
  EXPECT_NE(digest("data.dataset", "idx:" + rows), before);
}

// A file may be larger than what is read at once.
TEST_F(InputDigestsTest, AreOfLargeFilesToo) {
  write("a.csv", "1");
  std::filesystem::resize_file(path("a.csv"), (std::uintmax_t{1} << 30) + 1);
  EXPECT_EQ(digest("data.dataset", "csv:" + path("a.csv")).size(), 64U);
}

TEST_F(InputDigestsTest, OfATrainerAreOfItsScript) {
  write("train.py", "1");
  write("python",
        "\x7f"
        "ELF and more");
  write("log.txt", "");
  const std::string command =
      "env A=1 " + path("python") + " '" + path("train.py") + "' --log " + path("log.txt");
  const std::string before = digest("trainer.command", command);
  ASSERT_EQ(before.size(), 64U);
  write("log.txt", "what the trainer says");
  EXPECT_EQ(digest("trainer.command", command), before);
  write("python",
        "\x7f"
        "ELF of another version");
  EXPECT_EQ(digest("trainer.command", command), before);
  write("train.py", "2");
  EXPECT_NE(digest("trainer.command", command), before);
  EXPECT_THAT(InputDigests().of({{"trainer.command", "train --fast"}}), IsEmpty());
}

}  // namespace
}  // namespace starling::study
