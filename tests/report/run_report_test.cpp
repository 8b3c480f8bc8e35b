// SPDX-License-Identifier: Apache-2.0
#include "core/report/run_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <sstream>

#include "core/base/durable_file.h"
#include "core/report/chart_sections.h"
#include "core/report/facets.h"
#include "core/report/run_charts.h"
#include "core/report/run_directory.h"
#include "core/report/run_json.h"
#include "tests/report/run_samples.h"
#include "tests/report/xml_check.h"
#include "tests/support/temporary_directory.h"

namespace starling::report {
namespace {

namespace json = boost::json;
using starling::testing::count_of;
using starling::testing::find_fault;
using starling::testing::read_table;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

report::Run parsed(const std::string& summary, const std::string& metrics) {
  auto run = parse_simulation(summary, metrics);
  EXPECT_TRUE(run) << run.error().message();
  return std::move(*run);
}

TEST(RunReport, AnUnfinishedRunSaysHowFarItIsAndWhetherItGoesOn) {
  report::Run run = testing::sample_run({{"train.local-steps", "3"}, {"steps", "400"}}, 0.5);
  run.unfinished = true;
  run.steps = 100;
  EXPECT_THAT(render_report(std::vector{run}),
              HasSubstr("until step 100 of 400. The command that began it begins it again."));
  run.settings.back().second = "60000";
  EXPECT_THAT(render_report(std::vector{run}), HasSubstr("until step 100 of 60,000."));
  run.has_checkpoint = true;
  EXPECT_THAT(render_report(std::vector{run}), HasSubstr("goes on from its last checkpoint."));
}

TEST(RunReport, TheTimeOfRealProcessesIsNotVirtual) {
  std::string summary = testing::summary();
  const std::string virtual_page =
      render_report(std::vector{parsed(summary, testing::metrics_lines(5))});
  EXPECT_THAT(virtual_page, HasSubstr("Against virtual time"));
  const std::string program = "starling-gossip simulate";
  summary.replace(summary.find(program), program.size(), "starling-gossip launch");
  const std::string page = render_report(std::vector{parsed(summary, testing::metrics_lines(5))});
  EXPECT_THAT(page, HasSubstr("Against time"));
  EXPECT_THAT(page, Not(HasSubstr("irtual time")));
}

TEST(RunReport, NumbersEqualMetrics) {
  const std::string metrics = testing::metrics_lines(30);
  const std::string page = render_report(std::vector{parsed(testing::summary(), metrics)});
  const auto rows = read_table(page, "numbers");
  ASSERT_EQ(rows.size(), 31U);
  std::istringstream lines(metrics);
  std::string line;
  std::size_t compared = 0;
  for (std::size_t r = 1; std::getline(lines, line); ++r) {
    const json::object object = json::parse(line).as_object();
    ASSERT_EQ(rows[r].size(), rows[0].size());
    for (std::size_t c = 0; c < rows[0].size(); ++c) {
      const json::value& value = object.at(rows[0][c]);
      if (value.is_null()) {
        EXPECT_EQ(rows[r][c], "–");
      } else {
        EXPECT_EQ(std::stod(rows[r][c]), value.to_number<double>()) << rows[0][c] << ", row " << r;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 300U);
}

// The mean of all models stands after what a node has, and is called what it is.
TEST(RunReport, TheFirstCardIsWhatANodeHas) {
  const auto run = parsed(testing::summary(), testing::metrics_lines(30));
  const std::string page = render_report(std::vector{run});
  const auto percent = [&](Measure measure) {
    return fmt::format("{:.2f} %", *run.last(measure) * 100);
  };
  const std::size_t nodes = page.find(percent(Measure::kEvalAccuracy));
  const std::size_t mean = page.find(percent(Measure::kEvalAccuracyMeanModel));
  ASSERT_NE(nodes, page.npos);
  ASSERT_NE(mean, page.npos);
  EXPECT_LT(nodes, mean);
  EXPECT_LT(page.find("mean of nodes; "), mean);
  EXPECT_GT(page.find("a model that no node has"), mean);
}

// Nothing that a browser would fetch or run.
void expect_self_contained(const std::string& page) {
  EXPECT_EQ(find_fault(page), "");
  for (const char* part : {"http:", "https:", "href=", "url(", "@import", "<script", "<link",
                           "<iframe", "javascript:"}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
  EXPECT_EQ(count_of(page, "src="), count_of(page, "src=\"data:image/svg+xml;base64,"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(RunReport, IsSelfContainedAndWellFormed) {
  report::Run run = parsed(testing::summary(), testing::metrics_lines(30));
  run.topology_svg = "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";
  expect_self_contained(render_report(std::vector{run}));
  expect_self_contained(render_report(std::vector{run, run, run}));
  const report::Run federated = *parse_federated_run(testing::federated_run(5));
  expect_self_contained(render_report(std::vector{federated}));
  expect_self_contained(render_report(std::vector{run, federated}));
}

TEST(RunReport, HostileNamesStayText) {
  const std::string evil = "\"><script>alert('x')</script><img src=x onerror=\"y\">\x01\xff&amp;";
  report::Run run = parsed(testing::summary(), testing::metrics_lines(3));
  run.algorithm = run.name = run.topology->name = run.program = run.trace_sha256 = run.state = evil;
  run.settings = {{evil, evil}, {"data.dataset", evil}};
  run.evaluations[1].metrics[{evil, Source::kEval}] = 1;
  report::Run other = run;
  other.settings[1].second = evil + evil;
  for (const std::string& page :
       {render_report(std::vector{run}), render_report(std::vector{run, other})}) {
    EXPECT_EQ(find_fault(page), "");
    EXPECT_THAT(page, Not(HasSubstr("<script")));
    EXPECT_THAT(page, Not(HasSubstr("<img src=x")));
    EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
  }
}

// Of every second round clients evaluate the model.
report::Run evaluated_by_clients() {
  auto run = parse_federated_run(R"({"name":"demo","state":"completed","rounds":[
      {"round":1,"state":"committed","seconds":1,"bytes_in":1,"eval_accuracy":0.5,"eval_loss":0.9},
      {"round":2,"state":"committed","seconds":1,"bytes_in":1,"eval_accuracy":0.6,"eval_loss":0.8,
       "federated_loss":0.7,"federated_accuracy":0.625,"federated_seconds":2},
      {"round":3,"state":"committed","seconds":1,"bytes_in":1,"eval_accuracy":0.7,"eval_loss":0.6},
      {"round":4,"state":"committed","seconds":1,"bytes_in":1,"eval_accuracy":0.8,"eval_loss":0.4,
       "federated_loss":0.5,"federated_accuracy":0.8125,"federated_seconds":2}],
      "stopped_early":"loss has not improved",
      "best_round":{"round":4,"metric":"federated-accuracy","value":0.8125}})");
  EXPECT_TRUE(run) << run.error().message();
  return std::move(*run);
}

TEST(RunReport, ShowsWhatClientsFoundBesideTheCoordinatorsEvaluation) {
  const report::Run run = evaluated_by_clients();
  const std::string page = render_report(std::vector{run});
  expect_self_contained(page);
  EXPECT_THAT(page, HasSubstr("<dt>Accuracy</dt><dd>80.00 %</dd>"));
  EXPECT_THAT(page, HasSubstr("<dt>Held-out accuracy</dt><dd>81.25 %<small>by clients, on their "
                              "own rows</small>"));
  const auto rows = read_table(page, "numbers");
  EXPECT_THAT(rows.at(0), ElementsAre("round", "wall time (s)", "eval loss", "accuracy",
                                      "bytes sent", "held-out loss", "held-out accuracy"));
  EXPECT_THAT(rows.at(1), ElementsAre("1", "1", "0.9", "0.5", "1", "–", "–"));
  EXPECT_THAT(rows.at(2), ElementsAre("2", "4", "0.8", "0.6", "2", "0.7", "0.625"));
  const std::string name = "demo";
  for (const Chart& chart : {accuracy_chart({{&run, 1}, {&name, 1}}, Progress::kSteps),
                             loss_chart({{&run, 1}, {&name, 1}}, Progress::kSteps)}) {
    ASSERT_EQ(chart.series.size(), 2U);
    EXPECT_EQ(chart.series[0].name, "eval");
    EXPECT_EQ(chart.series[1].name, "held-out");
    EXPECT_THAT(chart.series[1].x, ElementsAre(2, 4)) << "a line without gaps";
  }
}

// The vertical limits of the accuracy's chart for these evaluations.
std::optional<Limits> limits_for(const std::vector<double>& accuracies) {
  report::Run run = testing::sample_run({}, 0);
  run.evaluations.clear();
  for (const double accuracy : accuracies) {
    Evaluation& evaluation = run.evaluations.emplace_back();
    evaluation.at(Measure::kStep) = static_cast<double>(run.evaluations.size());
    evaluation.at(Measure::kEvalAccuracy) = accuracy;
  }
  const std::string name = "demo";
  return chart_sections({{&run, 1}, {&name, 1}}).front().charts.front().y.limits;
}

TEST(RunReport, TheBeginningIsCutWhereItWouldTakeMostOfTheHeight) {
  const auto cut = limits_for({0.1, 0.6, 0.7, 0.75, 0.78, 0.79, 0.8, 0.81});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->low, 0.7);
  EXPECT_EQ(cut->high, 0.81);
  EXPECT_FALSE(limits_for({0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8})) << "it does not";
  EXPECT_FALSE(limits_for({0.1, 0.7, 0.8})) << "there is hardly a curve";
  EXPECT_FALSE(limits_for({0.1, 0.1, 0.1, 0.1})) << "nothing was learned";
  const auto flat = limits_for({0.1, 0.9, 0.9, 0.9, 0.9});
  ASSERT_TRUE(flat);
  EXPECT_NEAR(flat->low, 0.82, 1e-9) << "a tenth of all";
  EXPECT_EQ(flat->high, 0.9);
}

report::Run with_metrics(const std::string& name = "demo") {
  auto run = parse_federated_run(R"({"name":")" + name + R"(","state":"completed","rounds":[
      {"round":1,"state":"committed","train_metrics":{"accuracy":0.5,"mae":3},
       "eval_metrics":{"mae":2.5},"federated_metrics":null},
      {"round":2,"state":"committed","train_metrics":{"accuracy":0.75,"mae":2},
       "eval_metrics":null,"federated_metrics":{"mae":2.25,"r2":null}},
      {"round":3,"state":"committed","train_metrics":{"accuracy":0.875},
       "eval_metrics":{"mae":1.5}}]})");
  EXPECT_TRUE(run) << run.error().message();
  return std::move(*run);
}

TEST(RunReport, MetricsOfATrainerAreCurves) {
  const report::Run run = with_metrics();
  const std::string page = render_report(std::vector{run});
  expect_self_contained(page);
  const auto rows = read_table(page, "numbers");
  EXPECT_THAT(rows.at(0), ElementsAre("round", "wall time (s)", "bytes sent", "train accuracy",
                                      "eval mae", "held-out mae", "train mae"));
  EXPECT_THAT(rows.at(2), ElementsAre("2", "0", "0", "0.75", "–", "2.25", "2"));
  const std::string name = "demo";
  const std::vector<Chart> charts = metric_charts({{&run, 1}, {&name, 1}});
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_EQ(charts[0].title, "accuracy");
  ASSERT_EQ(charts[0].series.size(), 1U);
  EXPECT_EQ(charts[0].series[0].name, "train");
  EXPECT_EQ(charts[1].title, "mae");
  ASSERT_EQ(charts[1].series.size(), 3U);
  EXPECT_EQ(charts[1].series[0].name, "eval");
  EXPECT_THAT(charts[1].series[0].x, ElementsAre(1, 3)) << "a line without gaps";
  EXPECT_THAT(charts[1].series[0].y, ElementsAre(2.5, 1.5));
  EXPECT_EQ(charts[1].series[1].name, "held-out");
  EXPECT_EQ(charts[1].series[2].name, "train");
  EXPECT_THAT(page, HasSubstr("Metrics of the trainer"));
  EXPECT_THAT(page, HasSubstr("<figcaption>mae</figcaption>"));
  EXPECT_THAT(render_report(std::vector{evaluated_by_clients()}),
              Not(HasSubstr("Metrics of the trainer")));
}

TEST(RunReport, OfSeveralRunsEachMetricOfEachSourceHasAChart) {
  const std::vector<report::Run> runs = {with_metrics("a"), evaluated_by_clients(),
                                         with_metrics("c")};
  const std::vector<std::string> names = {"a", "demo", "c"};
  const std::vector<Chart> charts = metric_charts({runs, names});
  std::vector<std::string> titles;
  for (const Chart& chart : charts) {
    titles.push_back(chart.title);
    ASSERT_EQ(chart.series.size(), 2U);
    EXPECT_EQ(chart.series[0].name, "a");
    EXPECT_EQ(chart.series[1].style, 2);
  }
  EXPECT_THAT(titles, ElementsAre("train accuracy", "eval mae", "held-out mae", "train mae"));
  expect_self_contained(render_report(runs));
}

TEST(RunReport, ManyMetricsDoNotFillAPageAndItSaysSo) {
  std::string metrics;
  for (int i = 0; i < 40; ++i) metrics += fmt::format("{}\"m{:02}\":1", i == 0 ? "" : ",", i);
  const auto run = parse_federated_run(fmt::format(
      R"({{"rounds":[{{"round":1,"state":"committed","eval_metrics":{{{}}}}}]}})", metrics));
  ASSERT_TRUE(run) << run.error().message();
  const std::string page = render_report(std::vector{*run});
  EXPECT_THAT(page, HasSubstr("The first 32 of 40; the numbers below have all."));
  EXPECT_THAT(page, HasSubstr("<figcaption>m31</figcaption>"));
  EXPECT_THAT(page, Not(HasSubstr("<figcaption>m32</figcaption>")));
  EXPECT_THAT(read_table(page, "numbers").at(0), Contains("eval m39"));
}

TEST(RunReport, SaysWhyARunStoppedEarlyAndWhichModelIsTheBest) {
  const std::string page = render_report(std::vector{evaluated_by_clients()});
  EXPECT_THAT(page, HasSubstr("<dt>Rounds</dt><dd>4<small>stopped early</small>"));
  EXPECT_THAT(page, HasSubstr("Stopped early: loss has not improved."));
  EXPECT_THAT(page, HasSubstr("<dt>Best round</dt><dd>4<small>held-out accuracy 0.8125</small>"));
  const std::string other =
      render_report(std::vector{*parse_federated_run(testing::federated_run(5))});
  EXPECT_THAT(other, Not(HasSubstr("topped early")));
  EXPECT_THAT(other, Not(HasSubstr("Best round")));
}

TEST(RunReport, OnlyGossipRunsHaveAMeanOverNodes) {
  const report::Run gossip = parsed(testing::summary(), testing::metrics_lines(10));
  const report::Run federated = evaluated_by_clients();
  const auto page = [](const report::Run& a, const report::Run& b) {
    return render_report(std::vector{a, b});
  };
  EXPECT_THAT(page(federated, federated), Not(HasSubstr("over nodes")));
  EXPECT_THAT(page(federated, federated), HasSubstr("<figcaption>Held-out accuracy</figcaption>"));
  EXPECT_THAT(page(gossip, gossip),
              HasSubstr("<figcaption>Accuracy, mean over nodes</figcaption>"));
  EXPECT_THAT(page(gossip, gossip), HasSubstr("Accuracy is the mean over nodes."));
  EXPECT_THAT(page(gossip, gossip), Not(HasSubstr("eld-out")));
  EXPECT_THAT(page(gossip, federated),
              HasSubstr("<figcaption>Accuracy, mean over nodes (gossip runs)</figcaption>"));
  const auto rows = read_table(page(gossip, federated), "comparison");
  EXPECT_THAT(rows.at(0), Contains("held-out accuracy"));
  EXPECT_THAT(rows.at(2), Contains("0.8125"));
}

TEST(RunReport, AnEmptyRunHasAPage) {
  const std::string page = render_report(std::vector{parsed("{}", "")});
  EXPECT_EQ(find_fault(page), "");
  EXPECT_EQ(count_of(page, "<svg"), 0U);
}

TEST(RunReport, VeryManyNumbersAreThinnedAndItSaysSo) {
  const std::string page =
      render_report(std::vector{parsed(testing::summary(), testing::metrics_lines(5001))});
  EXPECT_EQ(find_fault(page), "");
  EXPECT_THAT(page, HasSubstr("One in 3 of 5,001 evaluations"));
  EXPECT_EQ(read_table(page, "numbers").back().front(), "50000");
  EXPECT_LT(page.size(), 3'000'000U);
}

TEST(RunReport, SeveralRunsHaveASeriesAndARowEach) {
  const report::Run ring = parsed(testing::summary("ring"), testing::metrics_lines(10));
  const report::Run torus = parsed(testing::summary("torus:4x4"), testing::metrics_lines(10));
  const std::string page = render_report(std::vector{ring, torus});
  const auto rows = read_table(page, "comparison");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1][0], "ring");
  EXPECT_EQ(rows[2][0], "torus:4x4");
  EXPECT_THAT(page, HasSubstr(">ring</text>"));
}

TEST(RunReport, SeveralRunsShowEachGraphOnce) {
  report::Run ring = parsed(testing::summary("ring"), testing::metrics_lines(10));
  report::Run torus = parsed(testing::summary("torus:4x4"), testing::metrics_lines(10));
  ring.topology_svg = "<svg xmlns=\"http://www.w3.org/2000/svg\"><title>ring</title></svg>";
  torus.topology_svg = "<svg xmlns=\"http://www.w3.org/2000/svg\"><title>torus</title></svg>";
  report::Run again = ring;
  again.settings.emplace_back("train.learning-rate", "0.7");
  const std::string page = render_report(std::vector{ring, torus, again});
  expect_self_contained(page);
  EXPECT_EQ(count_of(page, "src=\"data:image/svg+xml;base64,"), 2U);
  EXPECT_THAT(page, HasSubstr("alt=\"Graph of torus:4x4\""));
  EXPECT_THAT(page, HasSubstr("alt=\"Graph of ring, of 2 runs\""));
}

// A run that only mixes follows the topology's rate, so the dotted line lies on the measured one.
TEST(ConsensusChart, PredictsTheRateOfTheTopology) {
  report::Run run;
  run.topology = TopologyFacts{.name = "ring", .slem = 0.9};
  run.settings = {{"train.local-steps", "2"}};
  for (int step = 0; step <= 100; step += 10) {
    Evaluation& evaluation = run.evaluations.emplace_back();
    evaluation.at(Measure::kStep) = step;
    evaluation.at(Measure::kConsensusDistance) = 5 * std::pow(0.9, step / 2);
  }
  const std::string name = "ring";
  const Chart chart = consensus_chart({{&run, 1}, {&name, 1}});
  ASSERT_EQ(chart.series.size(), 2U);
  const Series& predicted = chart.series[1];
  EXPECT_EQ(predicted.line, Line::kPredicted);
  EXPECT_EQ(predicted.x.front(), 0);
  EXPECT_EQ(predicted.y.front(), 5);
  EXPECT_EQ(predicted.x.back(), 100);
  EXPECT_NEAR(predicted.y.back(), 5 * std::pow(0.9, 50), 1e-12);
  EXPECT_THAT(predicted.name, HasSubstr("λ^(t/2)"));
}

// Models that begin equal have no distance at first; the rate is laid through the first that is.
TEST(ConsensusChart, IsNotStretchedToRoundingErrors) {
  std::vector<report::Run> runs(2, testing::sample_run({{"topology.spec", "ring"}}, 0.5));
  const std::vector<std::string> names = {"ring", "complete"};
  for (Evaluation& evaluation : runs[1].evaluations) {
    evaluation.at(Measure::kConsensusDistance) = 3e-10;
  }
  const Chart chart = consensus_chart({runs, names});
  EXPECT_EQ(chart.y.floor, 1e-6);
  EXPECT_EQ(chart.series[1].y.front(), 3e-10) << "a file of its numbers has them";
  const std::string figure = render(chart);
  EXPECT_THAT(figure, HasSubstr(">0.01</text>"));
  EXPECT_THAT(figure, Not(HasSubstr(">1e-10</text>")));
  EXPECT_THAT(figure, Not(HasSubstr(">1e-8</text>")));
  EXPECT_THAT(figure, HasSubstr("Distances below 1e-6 are rounding errors and are not drawn."));
  const std::vector<Facet> facets = {{"all", {0, 1}, names, {0, 1}}};
  EXPECT_THAT(render_panel(make_panels(chart, facets).front().chart, false),
              Not(HasSubstr(">1e-8</text>")));
}

TEST(ConsensusChart, ShowsAPlainRunBesideARuinedOne) {
  std::vector<report::Run> runs(2, testing::sample_run({{"topology.spec", "ring"}}, 0.5));
  const std::vector<std::string> names = {"plain", "attacked"};
  for (Evaluation& evaluation : runs[1].evaluations) {
    evaluation.at(Measure::kConsensusDistance) = 4e36;
  }
  const Chart chart = consensus_chart({runs, names});
  EXPECT_EQ(chart.y.floor, 0);
  EXPECT_THAT(chart.note, Not(HasSubstr("rounding errors")));
  for (Evaluation& evaluation : runs[0].evaluations) {
    evaluation.at(Measure::kConsensusDistance) = 3e-10;
  }
  EXPECT_EQ(consensus_chart({runs, names}).y.floor, 1e-6) << "models that are the same";
}

TEST(ConsensusChart, BeginsWhereThereIsADistance) {
  report::Run run;
  run.topology = TopologyFacts{.slem = 0.5};
  for (const double distance : {0.0, 2.0, 1.5}) {
    Evaluation& evaluation = run.evaluations.emplace_back();
    evaluation.at(Measure::kStep) = static_cast<double>(run.evaluations.size());
    evaluation.at(Measure::kConsensusDistance) = distance;
  }
  const std::string name;
  const Chart chart = consensus_chart({{&run, 1}, {&name, 1}});
  EXPECT_EQ(chart.series.at(1).x.front(), 2);
  EXPECT_EQ(chart.series.at(1).y.front(), 2);
  EXPECT_EQ(chart.series.at(1).y.back(), 1);
}

TEST(RunDirectory, IsReadAndGetsItsPage) {
  const starling::testing::TemporaryDirectory directory;
  ASSERT_EQ(read_run(directory.path()).error().code(), "no-run");
  ASSERT_TRUE(write_durably(directory.path() / "summary.json", as_bytes(testing::summary())));
  EXPECT_EQ(write_report(directory.path()).error().code(), "bad-run");
  ASSERT_TRUE(
      write_durably(directory.path() / "metrics.jsonl", as_bytes(testing::metrics_lines(4))));
  ASSERT_TRUE(write_report(directory.path()));
  const std::string page = *read_text_file(directory.path() / "report.html", 1 << 24);
  EXPECT_EQ(find_fault(page), "");
  EXPECT_EQ(read_table(page, "numbers").size(), 5U);
}

// Only a damaged disk leaves it so: it was whole before the run began.
TEST(RunDirectory, ADamagedRecordOfAnUnfinishedRunIsNamedWithWhatToDo) {
  const starling::testing::TemporaryDirectory directory;
  const auto record = directory.path() / kUnfinishedFile;
  for (const std::string& text : {std::string(), testing::summary().substr(0, 40)}) {
    ASSERT_TRUE(write_durably(record, as_bytes(text)));
    EXPECT_EQ(read_run(directory.path()).error().message(),
              record.string() + " is damaged: remove " + directory.path().string() +
                  " to begin that run again, or name another directory");
  }
}

}  // namespace
}  // namespace starling::report
