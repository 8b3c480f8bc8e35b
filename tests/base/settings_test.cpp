// SPDX-License-Identifier: Apache-2.0
#include "core/base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "core/base/rng.h"

namespace starling {
namespace {

using ::testing::HasSubstr;

constexpr std::array<std::string_view, 3> kOptimizers = {"sgd", "momentum", "adam"};

struct TrainOptions {
  int local_epochs = 1;
  std::uint64_t seed = 1;
  double learning_rate = 0.1;
  bool shuffle = true;
  std::string optimizer = "sgd";
  std::string note;
  std::vector<int> hidden = {200, 200};
  std::vector<std::string> columns;
  std::vector<float> offsets;
  Duration deadline = std::chrono::seconds(60);
  std::optional<int> local_steps;
  std::optional<double> clip = 1.5;
  std::uint16_t port = 7700;

  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, TrainOptions& o) {
  visit("local-epochs", o.local_epochs,
        FieldInfo{.help = "passes over the data", .unit = "epochs", .min = 1, .max = 1000});
  visit("seed", o.seed, FieldInfo{.help = "of all randomness"});
  visit("learning-rate", o.learning_rate, FieldInfo{.help = "step size", .min = 0});
  visit("shuffle", o.shuffle, FieldInfo{.help = "every epoch"});
  visit("optimizer", o.optimizer, FieldInfo{.help = "local", .choices = kOptimizers});
  visit("note", o.note, FieldInfo{.help = "free text"});
  visit("hidden", o.hidden, FieldInfo{.help = "widths", .min = 1, .max = 1e6});
  visit("columns", o.columns, FieldInfo{.help = "names"});
  visit("offsets", o.offsets, FieldInfo{.help = "of the columns", .max = 1e39});
  visit("deadline", o.deadline, FieldInfo{.help = "of a round", .min = 0.001, .max = 3600});
  visit("local-steps", o.local_steps, FieldInfo{.help = "instead of epochs", .min = 1});
  visit("clip", o.clip, FieldInfo{.help = "gradient norm", .min = 0});
  visit("port", o.port, FieldInfo{.help = "TCP"});
}

// The options after the settings, or the sentence of the refusal.
std::string refusal(const Settings& settings) {
  TrainOptions options;
  const auto result = from_settings("train", settings, options);
  if (result) return "accepted";
  EXPECT_EQ(options, TrainOptions()) << "a refusal changes nothing";
  return result.error().code() + ": " + result.error().message();
}

TEST(Settings, AreCanonicalText) {
  EXPECT_EQ(to_settings("train", TrainOptions()), (Settings{{"train.local-epochs", "1"},
                                                            {"train.seed", "1"},
                                                            {"train.learning-rate", "0.1"},
                                                            {"train.shuffle", "true"},
                                                            {"train.optimizer", "sgd"},
                                                            {"train.note", ""},
                                                            {"train.hidden", "200,200"},
                                                            {"train.columns", ""},
                                                            {"train.offsets", ""},
                                                            {"train.deadline", "1m"},
                                                            {"train.local-steps", "none"},
                                                            {"train.clip", "1.5"},
                                                            {"train.port", "7700"}}));
  EXPECT_EQ(to_settings("", TrainOptions()).front().first, "local-epochs");
}

TEST(Settings, LoseNothing) {
  Rng rng({.purpose = Purpose::kTest});
  for (int i = 0; i < 2000; ++i) {
    TrainOptions options;
    options.local_epochs = 1 + static_cast<int>(rng.below(1000));
    options.seed = rng.next_u64();
    do {  // any finite double, also subnormal, by its bits
      options.learning_rate = std::abs(std::bit_cast<double>(rng.next_u64()));
    } while (!std::isfinite(options.learning_rate));
    options.shuffle = rng.below(2) == 0;
    options.note = std::string(rng.below(5), '=') + " , \"\xc3\xa9\n";
    options.hidden.assign(rng.below(4), 1 + static_cast<int>(rng.below(1000)));
    for (std::uint64_t k = rng.below(4); k > 0; --k) {
      std::string& name = options.columns.emplace_back(1 + rng.below(3), 'x');
      for (char& c : name) c = "a,\" \n;"[rng.below(6)];
    }
    for (std::uint64_t k = rng.below(4); k > 0; --k) {
      float& offset = options.offsets.emplace_back();
      do {
        offset = std::bit_cast<float>(static_cast<std::uint32_t>(rng.next_u64()));
      } while (!std::isfinite(offset));
    }
    options.deadline =
        Duration(1'000'000 + static_cast<std::int64_t>(rng.below(3'599'000'000'000)));
    if (rng.below(2) == 0) options.local_steps = 5;
    if (rng.below(2) == 0) options.clip = std::nullopt;
    TrainOptions read;
    const auto result = from_settings("train", to_settings("train", options), read);
    ASSERT_TRUE(result) << result.error().message();
    ASSERT_EQ(read, options);
  }
}

TEST(Settings, ListsOfNumbersAreFloat32) {
  TrainOptions options;
  ASSERT_TRUE(from_settings("train", {{"train.offsets", "0.1, -2 ,16777217,1e-60"}}, options));
  EXPECT_EQ(options.offsets, (std::vector<float>{0.1F, -2, 16777216, 0}));
  EXPECT_EQ(to_settings("train", options)[8].second, "0.1,-2,16777216,0");
}

TEST(Settings, LongDurationsAreExact) {
  for (std::int64_t count : {9'007'199'254'740'993, 8'999'999'999'999'999'999}) {
    EXPECT_EQ(parse_duration(format_duration(Duration(count))).value().count(), count);
  }
}

TEST(Settings, WhatIsNotNamedKeepsItsValue) {
  TrainOptions options;
  options.local_epochs = 7;
  EXPECT_TRUE(from_settings("train", {{"train.port", "1"}, {"model.kind", "mlp"}}, options));
  EXPECT_EQ(options.local_epochs, 7);
  EXPECT_EQ(options.port, 1);
}

TEST(Settings, UnknownKeysAreUnsupportedNotWrong) {
  TrainOptions options;
  const auto result = from_settings("train", {{"train.momentun", "1"}}, options);
  EXPECT_EQ(result.error().kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(result.error().code(), "unknown-setting");
  EXPECT_THAT(refusal({{"train.local-epoch", "1"}}),
              HasSubstr("did you mean 'train.local-epochs'?"));
  constexpr std::array<std::string_view, 2> kPrefixes = {"train", "strategy"};
  EXPECT_TRUE(expect_prefixes({{"train.x", ""}, {"strategy.y", ""}}, kPrefixes));
  EXPECT_EQ(expect_prefixes({{"privacy.z", ""}}, kPrefixes).error().code(), "unknown-setting");
  EXPECT_EQ(expect_prefixes({{"train", ""}}, kPrefixes).error().code(), "unknown-setting");
}

TEST(Settings, RefusalsSayKeyValueAndRange) {
  EXPECT_EQ(
      refusal({{"train.local-epochs", "0"}}),
      "setting-invalid: train.local-epochs = '0' is out of range; it must be 1 to 1000 epochs");
  EXPECT_EQ(refusal({{"train.local-epochs", "99999999999999999999"}}),
            "setting-invalid: train.local-epochs = '99999999999999999999' is out of range; it must "
            "be 1 to 1000 epochs");
  for (const char* text : {"", "1.5", "1e3", " 1", "0x10", "one", "1,2", "+1"}) {
    EXPECT_THAT(refusal({{"train.local-epochs", text}}), HasSubstr("is not an integer")) << text;
  }
  EXPECT_THAT(refusal({{"train.port", "65536"}}), HasSubstr("0 to 65535"));
  EXPECT_THAT(refusal({{"train.seed", "-1"}}), HasSubstr("must be at least 0"));
  EXPECT_THAT(refusal({{"train.seed", "18446744073709551616"}}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({{"train.learning-rate", "-0.1"}}), HasSubstr("must be at least 0"));
  for (const char* text : {"nan", "inf", "1e999", "-inf"}) {
    EXPECT_THAT(refusal({{"train.learning-rate", text}}), HasSubstr("setting-invalid")) << text;
  }
  EXPECT_THAT(refusal({{"train.shuffle", "1"}}), HasSubstr("is not true or false"));
  EXPECT_THAT(refusal({{"train.optimizer", "adm"}}),
              HasSubstr("is not sgd, momentum or adam; did you mean 'adam'?"));
  EXPECT_THAT(refusal({{"train.hidden", "200,0"}}), HasSubstr("1 to 1000000"));
  EXPECT_THAT(refusal({{"train.hidden", "200,"}}), HasSubstr("is not a list of integers"));
  for (const char* text : {"1.5,", "1,x", "1 2", "0x1p3"}) {
    EXPECT_THAT(refusal({{"train.offsets", text}}), HasSubstr("is not a list of numbers")) << text;
  }
  EXPECT_THAT(refusal({{"train.offsets", "1,nan"}}), HasSubstr("finite"));
  EXPECT_THAT(refusal({{"train.offsets", "1,2e39"}}), HasSubstr("at most"));
  EXPECT_THAT(refusal({{"train.offsets", "5e38"}}), HasSubstr("float32 cannot hold"));
  EXPECT_THAT(refusal({{"train.columns", "a,\"b"}}), HasSubstr("is not a list of texts"));
  EXPECT_THAT(refusal({{"train.columns", "a\"b,c"}}), HasSubstr("stands in quotes"));
  EXPECT_THAT(refusal({{"train.deadline", "60"}}), HasSubstr("is not a duration"));
  EXPECT_THAT(refusal({{"train.deadline", "2h"}}), HasSubstr("must be 1ms to 1h"));
  EXPECT_THAT(refusal({{"train.local-steps", "0"}}), HasSubstr("at least 1"));
  EXPECT_THAT(refusal({{"train.port", "1"}, {"train.port", "1"}}), HasSubstr("setting-repeated"));
}

TEST(Settings, HostileTextIsShownSafely) {
  const std::string shown = refusal({{"train.local-epochs", "\x1b[31m" + std::string(5000, 'x')}});
  EXPECT_LT(shown.size(), 200U);
  EXPECT_EQ(shown.find('\x1b'), shown.npos);
}

}  // namespace
}  // namespace starling
