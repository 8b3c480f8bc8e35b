// SPDX-License-Identifier: Apache-2.0
#include "core/config/binder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/config/test_options.h"
#include "tests/support/temporary_directory.h"

namespace starling::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Bound {
  Bound() { options.bind(binder); }
  std::string refusal(std::string_view toml) {
    const auto result = binder.read_toml(toml, "job.toml");
    return result ? "accepted" : result.error().code() + ": " + result.error().message();
  }

  testing::AllOptions options;
  Binder binder;
};
std::string refusal(std::string_view toml) { return Bound().refusal(toml); }

TEST(Binder, ReadsEveryTypeOfValue) {
  Bound b;
  EXPECT_EQ(b.refusal(R"(
name = "fashion-2nn"
seed = 9223372036854775807
[train]
local-epochs = 5
learning-rate = 1          # an integer is also a number
optimizer = "adam"
hidden = [ 300, 100, ]
shuffle = false
local-steps = 7
[round]
deadline = "250ms"
)"),
            "accepted");
  EXPECT_EQ(b.options.job.name, "fashion-2nn");
  EXPECT_EQ(b.options.job.seed, 9223372036854775807U);
  EXPECT_EQ(b.options.train.local_epochs, 5);
  EXPECT_EQ(b.options.train.learning_rate, 1.0);
  EXPECT_EQ(b.options.train.optimizer, "adam");
  EXPECT_THAT(b.options.train.hidden, ElementsAre(300, 100));
  EXPECT_FALSE(b.options.train.shuffle);
  EXPECT_EQ(b.options.train.local_steps, 7);
  EXPECT_EQ(b.options.round.deadline, std::chrono::milliseconds(250));
  EXPECT_EQ(b.options.round.seed, 5U) << "not in the file";
}

TEST(Binder, KnowsWhichSectionsWereSpokenOf) {
  Bound b;
  EXPECT_FALSE(b.binder.says(""));
  EXPECT_EQ(b.refusal("[train]\nlocal-epochs = 2"), "accepted");
  EXPECT_TRUE(b.binder.says("train")) << "though it says the default";
  EXPECT_EQ(b.binder.first_said("train"), "train.local-epochs");
  EXPECT_EQ(b.binder.first_said("train", "train.local-epochs"), std::nullopt);
  EXPECT_FALSE(b.binder.says(""));
  EXPECT_FALSE(b.binder.says("round"));
  EXPECT_EQ(b.refusal("seed = 3"), "accepted");
  EXPECT_TRUE(b.binder.says(""));
}

TEST(Binder, TakesAnySpellingOfTheSameToml) {
  Bound b;
  EXPECT_EQ(b.refusal("train.local-epochs = 3\ntrain.hidden = []\nround = {seed = 8}\n"),
            "accepted");
  EXPECT_EQ(b.options.train.local_epochs, 3);
  EXPECT_TRUE(b.options.train.hidden.empty());
  EXPECT_EQ(b.options.round.seed, 8U);
  EXPECT_EQ(b.refusal(""), "accepted");
  EXPECT_EQ(b.refusal("[train]\n[round]\n"), "accepted") << "empty sections";
  EXPECT_EQ(b.refusal("train.local-steps = 3"), "accepted");
  EXPECT_EQ(b.refusal("train.local-steps = \"none\""), "accepted");
  EXPECT_EQ(b.options.train.local_steps, std::nullopt);
}

TEST(Binder, NumbersOfAListMayBeWhole) {
  Bound b;
  for (const auto& [text, rates] : std::map<std::string, std::vector<float>>{
           {"[1, 2]", {1, 2}}, {"[1, 2.5, 1e-3]", {1, 2.5F, 1e-3F}}, {"[]", {}}}) {
    EXPECT_EQ(b.refusal("train.rates = " + text), "accepted");
    EXPECT_EQ(b.options.train.rates, rates);
  }
}

TEST(Binder, RefusesUnknownKeysNamingLineAndNearest) {
  EXPECT_EQ(refusal("seed = 1\n\n[train]\nlocal-epoch = 2\n"),
            "unknown-key: job.toml:4: unknown key 'train.local-epoch'; the nearest known key is "
            "'train.local-epochs'");
  EXPECT_THAT(refusal("[trian]\nhidden = [1]\n"), HasSubstr("is 'train.hidden'"));
  EXPECT_THAT(refusal("local-epochs = 2\n"), HasSubstr("is 'train.local-epochs'"))
      << "the right word in the wrong section";
  EXPECT_THAT(refusal("[round]\ncohort = 3\n"), EndsWith("unknown key 'round.cohort'"))
      << "none is near";
  EXPECT_THAT(refusal("[rounds]\n"), HasSubstr("job.toml:1: unknown key 'rounds'"));
  EXPECT_THAT(refusal("[train.local-epochs]\nx = 1"), HasSubstr("train.local-epochs.x"));
  EXPECT_THAT(refusal("name = \"a\"\ntrain = \"sgd\"\n"),
              HasSubstr("job.toml:2: 'train' is a section; write its keys below a line [train], or "
                        "in full, such as train.local-epochs"));
  EXPECT_THAT(refusal("b = 1\na = 2\n"), HasSubstr("job.toml:1: unknown key 'b'"))
      << "the first in the file";
}

TEST(Binder, WithoutAnyKeyThereIsNoNearestOne) {
  Binder binder;
  const auto read = binder.read_toml("seed = 1\n", "job.toml");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message(), "job.toml:1: unknown key 'seed'");
}

TEST(Binder, RefusesWrongTypesNamingWhatWouldBeRight) {
  EXPECT_EQ(refusal("[train]\nlearning-rate = \"fast\"\n"),
            "setting-invalid: job.toml:2: train.learning-rate = \"fast\" is not a number");
  EXPECT_THAT(refusal("train.local-epochs = 1.0"), HasSubstr("= 1 is not an integer"));
  EXPECT_THAT(
      refusal("train.local-epochs = 1e7"),
      HasSubstr("is not an integer; write it without a point and an exponent, as 10000000"));
  EXPECT_THAT(refusal("train.local-epochs = 1.5"), EndsWith("is not an integer"));
  EXPECT_THAT(refusal("train.local-epochs = \"2\""), HasSubstr("\"2\" is not an integer"));
  EXPECT_THAT(refusal("train.local-epochs = true"), HasSubstr("is not an integer"));
  EXPECT_THAT(refusal("train.local-epochs = [1]"), HasSubstr("[1] is not an integer"));
  EXPECT_THAT(refusal("[train.local-epochs]"), HasSubstr("a table is not an integer"));
  EXPECT_THAT(refusal("train.hidden = 200"),
              HasSubstr("is not a list of integers such as [200, 100]"));
  EXPECT_THAT(refusal("train.hidden = [200, 1.5]"), HasSubstr("is not a list of integers"));
  EXPECT_THAT(refusal("train.hidden = [\"a\", \"b\"]"), HasSubstr("[a,b] is not a list of int"));
  EXPECT_THAT(refusal("train.rates = 0.5"),
              HasSubstr("0.5 is not a list of numbers such as [0.5, 12]"));
  EXPECT_THAT(refusal("train.rates = [\"a\"]"), HasSubstr("[a] is not a list of numbers"));
  EXPECT_THAT(refusal("train.hidden = [1.5]"), HasSubstr("[1.5] is not a list of integers"));
  EXPECT_THAT(refusal("train.shuffle = 1"), HasSubstr("is not true or false"));
  EXPECT_THAT(refusal("name = 2020-01-01"), HasSubstr("is not a text"));
  EXPECT_THAT(refusal("name = 10"), HasSubstr("10 is not a text; write it in quotes: \"10\""));
  EXPECT_THAT(refusal("round.deadline = 60"), HasSubstr("write \"60s\" with the unit"));
}

TEST(Binder, RefusesValuesOutOfRange) {
  EXPECT_EQ(refusal("[train]\nlocal-epochs = 0\n"),
            "setting-invalid: job.toml:2: train.local-epochs = '0' is out of range; it must be 1 "
            "to 1000 epochs");
  EXPECT_THAT(refusal("train.learning-rate = nan"), HasSubstr("job.toml:1"));
  EXPECT_THAT(refusal("train.learning-rate = -inf"), HasSubstr("job.toml:1"));
  EXPECT_THAT(refusal("train.optimizer = \"sdg\""), HasSubstr("did you mean 'sgd'?"));
  EXPECT_THAT(refusal("train.hidden = [200, 0]"), HasSubstr("1 to 65536"));
  EXPECT_THAT(refusal("train.hidden = [99999999999]"), HasSubstr("1 to 65536"));
  EXPECT_THAT(refusal("round.deadline = \"2d\""), HasSubstr("1ms to 1d"));
}

TEST(Binder, RefusesBrokenToml) {
  EXPECT_THAT(refusal("seed = 1\nseed = 2\n"), StartsWith("toml-malformed: job.toml:2: "));
  EXPECT_THAT(refusal("name = \"a\n"), StartsWith("toml-malformed: job.toml:1: "));
  EXPECT_THAT(refusal("seed = 99999999999999999999\n"), StartsWith("toml-malformed"));
  EXPECT_THAT(refusal("seed = 99999999999999999999\n"), Not(HasSubstr("quotes")));
  EXPECT_THAT(refusal("name = \"a"), Not(HasSubstr("in quotes")));
  EXPECT_THAT(refusal("name = \"\xff\"\n"), StartsWith("toml-malformed"));
  EXPECT_THAT(refusal("name = " + std::string(100'000, '[')), StartsWith("toml-malformed"));
}

TEST(Binder, ATextWithoutQuotesIsNamed) {
  EXPECT_THAT(refusal("seed = 1\nname = fedadam  # the best\nseed = 2"),
              AllOf(StartsWith("toml-malformed: job.toml:2: "),
                    HasSubstr("; a text or a duration stands in quotes: \"fedadam\"")));
  EXPECT_THAT(refusal("[round]\r\ndeadline = 60s\r\n"),
              AllOf(StartsWith("toml-malformed: job.toml:2: "), HasSubstr("quotes: \"60s\"")));
  EXPECT_THAT(refusal("name = 127.0.0.1:7000\n"), HasSubstr("quotes: \"127.0.0.1:7000\""));
  EXPECT_THAT(refusal("name = 10.0.0.1\n"), HasSubstr("quotes: \"10.0.0.1\""));
  EXPECT_THAT(refusal("name = [a, b]\n"),
              HasSubstr("; each text of a list stands in quotes, such as [\"red\", \"green\"]"));
}

TEST(Binder, ReadsFilesAndNamesThem) {
  starling::testing::TemporaryDirectory directory;
  const auto path = directory.path() / "edge.toml";
  std::ofstream(path) << "seed = 3\nseeed = 4\n";
  Bound b;
  EXPECT_THAT(b.binder.read_file(path).error().message(), StartsWith(path.string() + ":2: "));
  const Error missing = b.binder.read_file(directory.path() / "none.toml").error();
  EXPECT_EQ(missing.code(), "file-missing");
  EXPECT_EQ(missing.category(), ErrorCategory::kUsage);
}

TEST(Binder, KnowsItsDefaultsAndItsValues) {
  Bound b;
  EXPECT_EQ(b.refusal("seed = 44"), "accepted");
  EXPECT_EQ(b.binder.documents()[1].default_value, "1");
  EXPECT_EQ(b.binder.settings()[1], (std::pair<std::string, std::string>("seed", "44")));
}

struct FreeSettings {
  std::string settings;
};
template <class V>
void describe(V& visit, FreeSettings& o) {
  visit("settings", o.settings, FieldInfo{.help = "anything"});
}

TEST(Binder, TakesATableWhoseKeysItDoesNotKnow) {
  FreeSettings free;
  Bound b;
  b.binder.bind("trainer", free);
  b.binder.take_table("trainer", "settings");
  EXPECT_EQ(b.refusal(R"(
name = "own"
[trainer]
hidden = [200, 200]
dropout = 0.5
layers = { kind = "conv", "odd key" = true }
since = 2026-11-26
)"),
            "accepted");
  EXPECT_EQ(b.options.job.name, "own");
  EXPECT_EQ(free.settings, R"({"dropout":5E-1,"hidden":[200,200],"layers":{"kind":"conv",)"
                           R"("odd key":true},"since":"2026-11-26"})");
  EXPECT_TRUE(b.binder.says("trainer"));
  for (const char* number : {"nan", "{ deep = [1, inf] }"}) {
    EXPECT_EQ(b.refusal(std::string("[trainer]\nnever = ") + number),
              "setting-invalid: job.toml: [trainer] has a number that is inf or nan, which cannot "
              "be passed on; write it as a text");
  }
  // As a job is written down again.
  EXPECT_EQ(b.refusal("trainer.settings = '{\"hidden\": 7}'"), "accepted");
  EXPECT_EQ(free.settings, R"({"hidden": 7})");
  EXPECT_EQ(b.refusal("[trainer]\nsettings = 3"), "accepted") << "a key of its own";
  EXPECT_EQ(free.settings, R"({"settings":3})");
  EXPECT_EQ(b.refusal("[trainers]\nhidden = 3"),
            "unknown-key: job.toml:2: unknown key 'trainers.hidden'; the nearest known key is "
            "'train.hidden'");
}

TEST(Binder, SaysAValueAsAFlagDoes) {
  Bound b;
  EXPECT_FALSE(b.binder.says("train"));
  EXPECT_EQ(b.binder.say("train.learning-rate", "1e-1").value(), "0.1");
  EXPECT_EQ(b.options.train.learning_rate, 0.1);
  EXPECT_TRUE(b.binder.says("train"));
  EXPECT_EQ(b.binder.say("train.learning-rate", "fast").error().code(), "setting-invalid");
  EXPECT_EQ(b.binder.say("train.learning", "1").error().code(), "unknown-key");
}

}  // namespace
}  // namespace starling::config
