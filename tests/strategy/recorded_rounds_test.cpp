// SPDX-License-Identifier: Apache-2.0
// Each strategy against recorded values and an independent computation, in float through the exact
// aggregation and in double; then where long runs end.
#include <gtest/gtest.h>

#include "tests/strategy/federation.h"
#include "tests/strategy/plain_rounds.h"

namespace starling::strategy {
namespace {

struct Case {
  std::string name;
  Setting setting;
  std::vector<plain::Vector> recorded = {};  // after rounds 1, 2 and 3
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

Setting named(std::string name) {
  return {.options = {.name = std::move(name), .mu = 0.5, .alpha = 0.5}};
}

Setting scaffold_option(const char* option) {
  Setting setting = named("scaffold");
  setting.options.option = option;
  return setting;
}

Setting fednova(double mu, double momentum) {
  return {.options = {.name = "fednova", .mu = mu}, .sgd = {.momentum = momentum}};
}

const std::vector<Case> kCases = {
    {"fedavg",
     named("fedavg"),
     {{-.314750000, .285000000}, {-.487783813, .494617500}, {-.582909151, .648791171}}},
    {"fedprox",
     named("fedprox"),
     {{-.306937500, .277500000}, {-.480184535, .484410938}, {-.577971659, .638688905}}},
    {"fedavgm",
     named("fedavgm"),
     {{-.314750000, .285000000}, {-.771058813, .751117500}, {-1.149317513, 1.256952671}}},
    {"fedadagrad",
     named("fedadagrad"),
     {{-.099682792, .099649738}, {-.164616540, .166678833}, {-.214708917, .219621039}}},
    {"fedadam",
     named("fedadam"),
     {{-.096873807, .096553340}, {-.227521777, .227346039}, {-.377665278, .379241532}}},
    {"fedyogi",
     named("fedyogi"),
     {{-.096873333, .096552767}, {-.227154087, .226995823}, {-.376391345, .378038826}}},
    {"fednova",
     fednova(0, 0),
     {{-.379500000, .320625000}, {-.576413063, .560512617}, {-.678586328, .739993534}}},
    {"scaffold-I",
     scaffold_option("I"),
     {{-.119500000, .190000000}, {-.293335250, .342590000}, {-.393253085, .446016990}}},
    {"scaffold-II",
     scaffold_option("II"),
     {{-.119500000, .190000000}, {-.279531917, .341240000}, {-.382857015, .445980540}}},
    {"qfedavg",
     named("qfedavg"),
     {{-.187882785, .151490818}, {-.306130410, .271184160}, {-.372257835, .358904607}}},
    {"feddyn",
     named("feddyn"),
     {{-.237750000, .370000000}, {-.407778844, .651200000}, {-.484420716, .793481766}}},
    {"diloco",
     named("diloco"),
     {{-.158935000, .252700000}, {-.303081224, .499195151}, {-.398153439, .682937808}}},
    {"fednova-momentum", fednova(0, 0.9)},
    {"fednova-proximal", fednova(0.5, 0)}};

class RecordedRounds : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, RecordedRounds, ::testing::ValuesIn(kCases), [](const auto& param) {
  std::string name = param.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

template <class T>
void compare(const Case& c, double tolerance) {
  Federation<T> federation(c.setting);
  for (const plain::Vector& expected : plain::rounds(c.name, 3)) {
    federation.rounds(1);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(federation.x[i], expected[i], tolerance);
  }
}

TEST_P(RecordedRounds, TheIndependentComputationGivesTheRecordedDigits) {
  const auto computed = plain::rounds(GetParam().name, 3);
  for (std::size_t round = 0; round < GetParam().recorded.size(); ++round) {
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(computed[round][i], GetParam().recorded[round][i], 0.51e-9);
    }
  }
}

TEST_P(RecordedRounds, InDouble) { compare<double>(GetParam(), 1e-12); }
TEST_P(RecordedRounds, InFloatThroughTheExactAggregation) { compare<float>(GetParam(), 1e-6); }

struct Limit {
  Setting setting;
  plain::Vector x;
  double tolerance;
};

TEST(LongRuns, EndWhereTheTheorySays) {
  const plain::Vector uniform_optimum = {-0.5, 2.0 / 3};
  const std::vector<Limit> limits = {
      {scaffold_option("I"), uniform_optimum, 1e-9},
      {scaffold_option("II"), uniform_optimum, 1e-9},
      {named("feddyn"), uniform_optimum, 1e-9},
      {named("fedavg"), {-.699056, 1.077505}, 0.51e-6},  // clients that step more weigh more
      {fednova(0, 0), {-.788776, 1.273269}, 0.51e-6}};
  for (const Limit& limit : limits) {
    Federation<double> federation(limit.setting);
    federation.rounds(2000);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(federation.x[i], limit.x[i], limit.tolerance) << limit.setting.options.name;
    }
  }
}

}  // namespace
}  // namespace starling::strategy
