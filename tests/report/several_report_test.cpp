// SPDX-License-Identifier: Apache-2.0
// Pages and files about many runs.
#include "core/report/several_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/durable_file.h"
#include "core/report/chart_sections.h"
#include "core/report/chart_style.h"
#include "core/report/comparison.h"
#include "core/report/comparison_text.h"
#include "core/report/curve_files.h"
#include "core/report/facets.h"
#include "core/report/file_sums.h"
#include "core/report/run_json.h"
#include "core/report/run_report.h"
#include "core/report/seed_groups.h"
#include "core/report/study_directory.h"
#include "tests/report/run_samples.h"
#include "tests/report/xml_check.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace starling::report {
namespace {

using starling::testing::count_of;
using starling::testing::find_fault;
using starling::testing::read_table;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::sample_run;
using testing::sample_study;

std::vector<report::Run> two_groups() {
  std::vector<report::Run> runs;
  for (const char* topology : {"ring", "star"}) {
    for (const char* seed : {"1", "2"}) {
      runs.push_back(sample_run({{"seed", seed}, {"topology.spec", topology}, {"steps", "100"}},
                                topology[0] == 'r' ? 0.5 : 0.8));
    }
  }
  runs[1] = sample_run(runs[1].settings, 0.6);
  return runs;
}

TEST(SeveralReport, SeedsAreOneLineWithABand) {
  const std::string page = render_several(two_groups());
  EXPECT_EQ(find_fault(page), "");
  EXPECT_THAT(page, HasSubstr("<h1>2 settings compared, 4 runs</h1>"));
  const auto rows = read_table(page, "comparison");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1][0], "ring");
  EXPECT_EQ(rows[1][1], "2");
  EXPECT_EQ(rows[1][2], "0.5500 (0.5000 to 0.6000)");
  EXPECT_THAT(page, HasSubstr("A line is the mean over the seeds; the band around it reaches from "
                              "the lowest seed to the highest."));
  EXPECT_THAT(page, HasSubstr("class=\"band\""));
  EXPECT_EQ(read_table(page, "runs").size(), 5U) << "every run with its directory";
}

TEST(SeveralReport, SharedSettingsStandOnTopAndNamesHaveWhatDiffers) {
  const std::string page = render_several(two_groups());
  const std::size_t shared = page.find("<dt>steps</dt><dd>100</dd>");
  const std::size_t differing = page.find("<dt>topology.spec</dt><dd>ring · star</dd>");
  ASSERT_NE(shared, page.npos);
  ASSERT_NE(differing, page.npos);
  EXPECT_LT(std::max(shared, differing), page.find("id=\"comparison\""));
  EXPECT_THAT(page, HasSubstr("<dt>seed</dt><dd>1, 2</dd>"));
}

TEST(SeveralReport, RunsOfBothKindsSayWhatSetsThemApart) {
  std::vector<report::Run> runs = {
      sample_run({{"topology.spec", "ring"},
                  {"model.kind", "mlp"},
                  {"data.partition", "iid"},
                  {"topology.mixing", "auto"}},
                 0.5),
      sample_run({{"strategy.name", "fedavg"}, {"model.kind", "cnn"}, {"data.partition", "iid"}},
                 0.5),
      sample_run({{"strategy.name", "fedprox"}, {"model.kind", "cnn"}, {"data.partition", "iid"}},
                 0.5)};
  for (std::size_t i : {1U, 2U}) {
    runs[i].kind = RunKind::kFederated;
    runs[i].name = runs[i].settings[0].second;
    runs[i].settings.emplace_back("name", runs[i].name);
  }
  const std::string page = render_several(runs);
  EXPECT_THAT(page, HasSubstr("What sets the runs apart"));
  EXPECT_THAT(page, HasSubstr("<dt>topology.spec</dt><dd>ring · –</dd>"));
  EXPECT_THAT(page, HasSubstr("<dt>strategy.name</dt><dd>– · fedavg · fedprox</dd>"));
  EXPECT_THAT(page, HasSubstr("<dt>model.kind</dt><dd>mlp · cnn</dd>"));
  EXPECT_THAT(page, Not(HasSubstr("<dt>topology.mixing</dt>"))) << "one kind alone, one value";
  const std::string jobs = render_several(std::span(runs).subspan(1));
  EXPECT_THAT(jobs, HasSubstr("<dt>strategy.name</dt><dd>fedavg · fedprox</dd>"));
}

TEST(SeveralReport, SimulatedRunsAndRealProcessesAreToldApart) {
  std::vector<report::Run> runs(3, sample_run({{"topology.spec", "ring"}, {"seed", "1"}}, 0.5));
  runs[1].settings.emplace_back("real-protocol", "true");
  runs[2].settings.emplace_back("launch.proxy", "false");
  runs[2].real_time = true;
  const std::string page = render_several(runs);
  EXPECT_THAT(page, HasSubstr("<dt>runs as</dt><dd>simulated · simulated peers · real processes"));
  EXPECT_THAT(page, HasSubstr("Against virtual or wall time"));
  const auto rows = read_table(page, "comparison");
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1][0] + ", " + rows[2][0] + ", " + rows[3][0],
            "simulated, simulated peers, real processes");
  EXPECT_EQ(rows[1][4], "10 s virtual");
  EXPECT_EQ(rows[3][4], "10 s wall");
  EXPECT_THAT(comparison_text(runs, 200), Not(HasSubstr("true")));
  EXPECT_EQ(read_table(render_several(std::span(runs).first(2)), "comparison")[1][4], "10 s");
  runs[2].settings[1].second = "2";
  EXPECT_EQ(distinguishing_names(runs)[2], "real processes, seed 2");
}

TEST(SeveralReport, SeedsOfOneSettingAreOneRunsCharts) {
  const auto runs = two_groups();
  const std::string page = render_several(std::span(runs).first(2));
  EXPECT_EQ(find_fault(page), "");
  EXPECT_THAT(page, HasSubstr("<h1>2 runs compared</h1>"));
  EXPECT_THAT(page, HasSubstr("class=\"band\""));
  // Neither is the name of one of its seeds' directories.
  EXPECT_EQ(read_table(page, "comparison")[1][0], "mean of 2 seeds");
}

TEST(SeveralReport, AGridOf81RunsIsPanelsOfFewLines) {
  const std::vector<report::Run> runs = sample_study();
  const std::string page = render_several(runs);
  EXPECT_EQ(find_fault(page), "");
  EXPECT_THAT(page, HasSubstr("<h1>27 settings compared, 81 runs</h1>"));
  EXPECT_EQ(read_table(page, "comparison").size(), 28U);
  EXPECT_THAT(page, HasSubstr("<figcaption>torus:4x4, <span class=\"part\">local-steps 4</span>"));
  EXPECT_LT(page.size(), 4'000'000U);
  // Accuracy and loss against three axes, and the distance: nine panels each.
  EXPECT_EQ(count_of(page, "plot panel"), 9U * 7);
  EXPECT_EQ(count_of(page, "<ul class=\"legend\">"), 7U) << "one legend a chart";
}

// --- panels --------------------------------------------------------------------------------------

TEST(Facets, AreNoneWhereOneChartCanShowAll) {
  std::vector<report::Run> runs(kLinesMax, sample_run({{"topology.spec", "ring"}}, 0.5));
  EXPECT_TRUE(make_facets(runs, distinguishing_names(runs)).empty());
}

TEST(Facets, OneColourMeansTheSameEverywhere) {
  const SeedGroups groups = make_seed_groups(sample_study());
  const auto facets = make_facets(groups.means, distinguishing_names(groups.means));
  ASSERT_EQ(facets.size(), 9U);
  EXPECT_EQ(facets[0].title, "ring, local-steps 1");
  for (const Facet& facet : facets) {
    EXPECT_THAT(facet.names,
                ElementsAre("learning-rate 0.1", "learning-rate 0.05", "learning-rate 0.01"));
    EXPECT_THAT(facet.styles, ElementsAre(0, 1, 2));
  }
}

TEST(Facets, ManyValuesOfOneKeyStandInTheirOrder) {
  std::vector<report::Run> runs;
  for (int i = 1; i <= 14; ++i) {
    runs.push_back(sample_run({{"train.learning-rate", fmt::format("0.{:02}", i)}}, 0.5));
  }
  const auto facets = make_facets(runs, distinguishing_names(runs));
  ASSERT_EQ(facets.size(), 3U);
  EXPECT_EQ(facets[1].title, "learning-rate 0.07 to learning-rate 0.12");
  EXPECT_EQ(facets[2].runs.size(), 2U);
}

TEST(Facets, RunsOfAllKindsHavePanelsToo) {
  std::vector<report::Run> runs(10, sample_run({{"topology.spec", "ring"}}, 0.5));
  runs[3].kind = RunKind::kFederated;
  const std::string page = render_several(runs);
  EXPECT_EQ(find_fault(page), "");
  EXPECT_THAT(page, HasSubstr("plot panel"));
}

std::vector<report::Run> study_of_both_kinds() {
  std::vector<report::Run> runs;
  for (const char* strategy : {"fedavg", "fedprox", "fedadam"}) {
    runs.push_back(sample_run({{"strategy.name", strategy}}, 0.5));
    runs.back().kind = RunKind::kFederated;
  }
  for (const char* topology : {"ring", "star", "exponential", "complete"}) {
    for (const char* steps : {"1", "4"}) {
      runs.push_back(sample_run({{"topology.spec", topology}, {"train.local-steps", steps}}, 0.5));
    }
  }
  return runs;
}

TEST(Facets, OfBothKindsHaveRunsOfOneKindAndNoTwoAlike) {
  const std::vector<report::Run> runs = study_of_both_kinds();
  const auto facets = make_facets(runs, distinguishing_names(runs));
  ASSERT_EQ(facets.size(), 3U);
  EXPECT_EQ(facets[0].title, "federated");
  EXPECT_EQ(facets[1].title, "gossip; ring, local-steps 1 to exponential, local-steps 4");
  std::set<std::string> looks;
  for (const Facet& facet : facets) {
    for (const int style : facet.styles) looks.insert(colour_class(style) + mark(style, 0, 0));
  }
  EXPECT_EQ(looks.size(), runs.size());
  const std::string page = render_several(runs);
  const auto charts = count_of(page, "plot panel");
  EXPECT_GT(charts, 0U);
  EXPECT_EQ(count_of(page, "<ul class=\"legend\">"), charts) << "a legend a panel: 11 names";
}

TEST(Panels, HaveTheSameAxes) {
  const SeedGroups groups = make_seed_groups(sample_study());
  const auto names = distinguishing_names(groups.means);
  const auto facets = make_facets(groups.means, names);
  const Chart whole =
      accuracy_chart({groups.means, names, groups.lowest, groups.highest}, Progress::kSteps);
  const auto panels = make_panels(whole, facets);
  ASSERT_EQ(panels.size(), 9U);
  const auto labels = [](const Chart& chart) {
    const std::string figure = render_panel(chart, false);
    std::string text;
    for (std::size_t at = figure.find("class=\"tick\">"); at != figure.npos;
         at = figure.find("class=\"tick\">", at + 1)) {
      text += figure.substr(at + 13, figure.find('<', at) - at - 13) + " ";
    }
    return text;
  };
  EXPECT_NE(labels(panels[0].chart), "");
  EXPECT_EQ(labels(panels[0].chart), labels(panels[8].chart));
}

// --- files ---------------------------------------------------------------------------------------

const CurveFile& file_of(const std::vector<CurveFile>& files, const std::string& name) {
  const auto found = std::ranges::find(files, name, &CurveFile::name);
  EXPECT_NE(found, files.end()) << name;
  return found == files.end() ? files.front() : *found;
}

TEST(CurveFiles, CsvHasTheNumbersOfEachPoint) {
  const auto files = curves_as_csv(two_groups());
  const std::string& text = file_of(files, "accuracy-by-step.csv").text;
  EXPECT_THAT(text, ::testing::StartsWith("curve,topology.spec,step,accuracy,lowest,highest,seeds\n"
                                          "ring,ring,0,0,0,0,2\nring,ring,50,0.275,0.25,0.3,2\n"));
  EXPECT_EQ(count_of(text, "\n"), 1U + 2 * 3);
  EXPECT_THAT(file_of(files, "evaluation-loss-by-virtual-time.csv").text,
              HasSubstr("curve,topology.spec,virtual_time_seconds,loss,lowest"));
  EXPECT_THAT(file_of(files, "accuracy-by-bytes-sent-a-node.csv").text,
              HasSubstr(",bytes_sent_a_node,accuracy,"));
}

TEST(CurveFiles, CsvOfOneRunNamesItsCurves) {
  const auto run = parse_simulation(testing::summary(), testing::metrics_lines(5));
  ASSERT_TRUE(run);
  const auto files = curves_as_csv({&*run, 1});
  const std::string& text = file_of(files, "accuracy-by-step.csv").text;
  EXPECT_THAT(text, ::testing::StartsWith("curve,step,accuracy\nmean of nodes,0,"));
  EXPECT_THAT(text, HasSubstr("\nmean of nodes,30,\n")) << "what was not measured is empty";
  EXPECT_THAT(text, HasSubstr("\nmean model,0,"));
}

TEST(CurveFiles, CsvOfBothKindsHasAColumnForEachSettingThatDiffers) {
  const auto files = curves_as_csv(study_of_both_kinds());
  const std::string& text = file_of(files, "accuracy-by-step-or-round.csv").text;
  EXPECT_THAT(text, ::testing::StartsWith("curve,strategy.name,topology.spec,train.local-steps,"
                                          "step_or_round,accuracy\nfedavg,fedavg,,,0,0\n"));
  EXPECT_THAT(text, HasSubstr("\n\"ring, local-steps 4\",,ring,4,0,0\n"));
}

TEST(CurveFiles, CsvQuotesWhatHasCommas) {
  std::vector<report::Run> runs = two_groups();
  for (report::Run& run : runs) {
    if (run.settings[1].second == "star") run.settings[1].second = "small:k=4,b=\"1\"";
  }
  EXPECT_THAT(file_of(curves_as_csv(runs), "accuracy-by-step.csv").text,
              HasSubstr("\n\"small:k=4,b=\"\"1\"\"\",\"small:k=4,b=\"\"1\"\"\",0,"));
}

TEST(CurveFiles, SvgStandsOnItsOwn) {
  std::vector<report::Run> runs = two_groups();
  runs[0].settings[1].second = runs[1].settings[1].second = "<script>&\"";
  for (const CurveFile& file : curves_as_svg(runs)) {
    EXPECT_EQ(find_fault(file.text), "") << file.name;
    EXPECT_THAT(file.text, ::testing::StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    for (const char* part : {"<script", "var(", "url(", "href", "@import", "<title>A</title>"}) {
      EXPECT_THAT(file.text, Not(HasSubstr(part))) << file.name;
    }
    EXPECT_THAT(file.text, HasSubstr("<style>"));
    EXPECT_THAT(file.text, HasSubstr(">star</text>")) << "a legend";
    EXPECT_THAT(file.text, HasSubstr("class=\"axis\">"));
  }
  const auto files = curves_as_svg(runs);
  EXPECT_THAT(file_of(files, "accuracy-by-virtual-time.svg").text,
              HasSubstr("class=\"axis\">virtual time (s)</text>"));
  EXPECT_THAT(file_of(files, "accuracy-by-step.svg").text, HasSubstr("class=\"band\""));
  // Without the page's note, the legend says what is dotted: once, whatever the number of lines.
  const std::string dotted = "dotted: mixing alone";
  EXPECT_EQ(count_of(file_of(files, "consensus-distance-by-step.svg").text, dotted), 1U);
  EXPECT_EQ(count_of(file_of(files, "accuracy-by-step.svg").text, dotted), 0U);
}

TEST(CurveFiles, PanelsAreFilesOfTheirOwn) {
  const std::vector<report::Run> runs = sample_study();
  const auto files = curves_as_svg(runs);
  EXPECT_THAT(file_of(files, "accuracy-by-step-panel-5.svg").text,
              HasSubstr("Accuracy, mean over nodes (torus:4x4, local-steps 4)"));
  std::set<std::string> names;
  for (const CurveFile& file : files) names.insert(file.name);
  EXPECT_EQ(names.size(), files.size());
  EXPECT_EQ(curves_as_csv(runs).size(), 7U);
}

// --- a study's directory -------------------------------------------------------------------------

class StudyDirectory : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& rate, const std::string& seed) {
    const auto path = directory_.path() / name;
    ASSERT_TRUE(make_directory(path));
    const boost::json::value summary{{"settings", {{"seed", seed}, {"train.learning-rate", rate}}},
                                     {"seed", std::stoi(seed)}};
    ASSERT_TRUE(write_durably(path / "summary.json", as_bytes(boost::json::serialize(summary))));
    ASSERT_TRUE(write_durably(path / "metrics.jsonl", as_bytes(testing::metrics_lines(3))));
  }

  starling::testing::TemporaryDirectory directory_;
};

TEST_F(StudyDirectory, HasItsRunsBySettingsAndNamesTheUnfinished) {
  EXPECT_EQ(read_study(directory_.path()).error().code(), "no-run");
  write("a", "0.1", "2");
  write("b", "0.05", "10");
  write("c", "0.05", "2");
  write("d", "0.1", "1");
  std::filesystem::remove(directory_.path() / "d" / "summary.json");
  ASSERT_TRUE(make_directory(directory_.path() / "curves"));
  const auto study = read_study(directory_.path());
  ASSERT_TRUE(study) << study.error().message();
  std::vector<std::string> names;
  for (const report::Run& run : study->runs) names.push_back(run.directory.filename().string());
  EXPECT_THAT(names, ElementsAre("c", "b", "a"));
  ASSERT_EQ(study->left_out.size(), 1U);
  EXPECT_EQ(study->left_out.front().name + " " + study->left_out.front().reason,
            "d has not finished");
  EXPECT_FALSE(holds_run(directory_.path()));
  EXPECT_TRUE(holds_run(directory_.path() / "a"));
}

TEST_F(StudyDirectory, AHalfFinishedStudySaysHowManyHaveFinished) {
  write("a", "0.1", "1");
  write("b", "0.1", "2");
  write("c", "0.2", "1");
  std::filesystem::remove(directory_.path() / "c" / "summary.json");
  const std::string text =
      R"({"runs": [{"directory": "a", "state": "open"}, {"directory": "b", "state": "finished"},)"
      R"({"directory": "c", "state": "open"}, {"directory": "d", "state": "open"}]})";
  ASSERT_TRUE(write_durably(directory_.path() / "study.json", as_bytes(text)));
  auto study = read_study(directory_.path());
  ASSERT_TRUE(study) << study.error().message();
  ASSERT_EQ(study->left_out.size(), 2U);
  EXPECT_EQ(study->left_out[0].name + " " + study->left_out[0].reason, "c has not finished");
  EXPECT_EQ(study->left_out[1].name + " " + study->left_out[1].reason, "d has not begun");
  EXPECT_THAT(render_report(study->runs, study->left_out),
              HasSubstr("<h1>2 of 4 runs have finished</h1>"));
  study->left_out.push_back({"e", kNotBegun});
  const std::string page = render_report(study->runs, study->left_out);
  EXPECT_THAT(page, HasSubstr("<h1>2 of 5 runs have finished</h1>"));
  EXPECT_THAT(page, HasSubstr("<dd>has not finished"));
  EXPECT_THAT(page, Not(HasSubstr("<dd>has not begun")));
  const std::size_t line = page.find("2 runs of the study have not begun.");
  ASSERT_NE(line, page.npos);
  EXPECT_GT(line, page.find("Comparison")) << "it comes after those that have finished";
  EXPECT_THAT(render_report({study->runs.data(), 1}, study->left_out),
              HasSubstr("2 runs of the study have not begun."));
  std::filesystem::remove(directory_.path() / "b" / "summary.json");
  const auto one = read_study(directory_.path());
  ASSERT_TRUE(one);
  ASSERT_EQ(one->runs.size(), 1U);
  EXPECT_THAT(render_report(one->runs, one->left_out),
              AllOf(HasSubstr("<h1>1 of 4 runs has finished</h1>"), HasSubstr(" · a<")));
}

TEST_F(StudyDirectory, WhatIsDamagedIsNamedAndTheOthersAreShown) {
  write("a", "0.1", "1");
  write("b", "0.1", "2");
  write("c", "0.1", "3");
  const auto damage = [&](const char* run, const char* file) {
    ASSERT_TRUE(
        write_durably(directory_.path() / run / file, as_bytes(std::string(R"({"seed": )"))));
  };
  damage("a", "metrics.jsonl");
  std::filesystem::remove(directory_.path() / "c" / "summary.json");
  damage("c", kUnfinishedFile);
  const auto study = read_study(directory_.path());
  ASSERT_TRUE(study) << study.error().message();
  EXPECT_EQ(study->runs.size(), 1U);
  ASSERT_EQ(study->left_out.size(), 2U);
  EXPECT_THAT(study->left_out[0].reason, HasSubstr("cannot be read: "));
  EXPECT_THAT(study->left_out[0].reason, HasSubstr("metrics.jsonl, line 1"));
  EXPECT_THAT(study->left_out[1].reason, HasSubstr("c/unfinished.json is damaged: remove "));
  std::filesystem::remove_all(directory_.path() / "a");
  std::filesystem::remove_all(directory_.path() / "b");
  const auto none = read_study(directory_.path());
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message(), HasSubstr("c/unfinished.json is damaged: remove "));
}

TEST_F(StudyDirectory, FilesThatHaveChangedSinceTheRunEndedAreNamed) {
  const auto file = [&](const char* run, const char* name) {
    return directory_.path() / run / name;
  };
  for (const char* run : {"a", "b", "c"}) {
    write(run, "0.1", std::to_string(run[0] - 'a'));
    ASSERT_TRUE(write_durably(file(run, "presence.csv"), as_bytes("node,from,to\n")));
    const std::vector<std::string> names = {"metrics.jsonl", "presence.csv", "links.csv"};
    const std::string record = read_text_file(file(run, "summary.json"), 1 << 20).value();
    ASSERT_TRUE(write_sums(directory_.path() / run, names, "summary.json", record));
    EXPECT_THAT(changed_files(directory_.path() / run), ElementsAre());
  }
  ASSERT_TRUE(write_durably(file("a", "metrics.jsonl"), as_bytes(testing::metrics_lines(2))));
  ASSERT_TRUE(write_durably(file("b", "presence.csv"), as_bytes("node,from,till\n")));
  std::filesystem::remove(file("c", "presence.csv"));
  const auto study = read_study(directory_.path());
  ASSERT_TRUE(study) << study.error().message();
  EXPECT_EQ(study->runs.size(), 2U);
  ASSERT_EQ(study->left_out.size(), 1U);
  EXPECT_THAT(study->left_out[0].name + " " + study->left_out[0].reason,
              HasSubstr("a cannot be read: metrics.jsonl has changed since the run ended, or "
                        "cannot be read; restore "
                        "it, or remove "));
  ASSERT_EQ(study->damaged.size(), 1U) << "what was removed is no damage";
  EXPECT_EQ(study->damaged[0].name + " " + study->damaged[0].reason,
            "b presence.csv has changed since the run ended, or cannot be read");
  ASSERT_TRUE(write_durably(file("b", kSumsFile), as_bytes("rubbish")));
  EXPECT_THAT(changed_files(directory_.path() / "b"), ElementsAre(kSumsFile));
  ASSERT_TRUE(write_durably(file("b", kSumsFile), ByteView()));
  EXPECT_THAT(changed_files(directory_.path() / "b"), ElementsAre(kSumsFile));
  const std::string sums = read_text_file(file("c", kSumsFile), 1 << 20).value();
  for (const std::size_t bytes :
       {sums.size() / 2, sums.size() - 2, sums.rfind('\n', sums.size() - 2) + 1}) {
    ASSERT_TRUE(write_durably(file("c", kSumsFile), as_bytes(sums.substr(0, bytes))));
    EXPECT_THAT(changed_files(directory_.path() / "c"), ElementsAre(kSumsFile)) << bytes;
  }
  ASSERT_TRUE(write_durably(file("c", kSumsFile), as_bytes(sums.substr(sums.find('\n') + 1))));
  EXPECT_THAT(changed_files(directory_.path() / "c"), ElementsAre(kSumsFile))
      << "without the first";
  ASSERT_TRUE(write_durably(file("c", kSumsFile), as_bytes(sums)));
  std::filesystem::create_directory(file("c", "presence.csv"));
  EXPECT_THAT(changed_files(directory_.path() / "c"), ElementsAre("presence.csv"));
}

TEST_F(StudyDirectory, AFileIsHashedOnceUntilItChanges) {
  const auto run = directory_.path() / "a";
  write("a", "0.1", "1");
  const auto file = run / "presence.csv";
  std::filesystem::create_symlink(starling::testing::source_root() / "README.md",
                                  file);  // not of just now
  const std::vector<std::string> names = {"metrics.jsonl", "presence.csv"};
  const std::string record = read_text_file(run / "summary.json", 1 << 20).value();
  ASSERT_TRUE(write_sums(run, names, "summary.json", record));
  EXPECT_THAT(changed_files(run), ElementsAre());
  const auto checked = [&] { return read_text_file(run / ".SHA256SUMS.checked", 1 << 20).value(); };
  EXPECT_THAT(checked(), HasSubstr(" presence.csv"));
  // What is written there counts as long as the file is the same.
  std::string other = checked();
  other[0] = other[0] == '0' ? '1' : '0';
  ASSERT_TRUE(write_durably(run / ".SHA256SUMS.checked", as_bytes(other)));
  EXPECT_THAT(changed_files(run), ElementsAre("presence.csv"));
  ASSERT_TRUE(write_durably(file, as_bytes(std::string("new"))));
  EXPECT_THAT(changed_files(run), ElementsAre("presence.csv"));
}

// Also one whose time of modification was set back.
TEST_F(StudyDirectory, AChangeInPlaceIsSeen) {
  const auto run = directory_.path() / "a";
  write("a", "0.1", "1");
  const auto file = run / "presence.csv";
  const auto last_year = std::filesystem::file_time_type::clock::now() - std::chrono::hours(8760);
  const auto write_in_place = [&](const char* text) {
    std::ofstream(file) << text;
    std::filesystem::last_write_time(file, last_year);
  };
  write_in_place("old");
  const std::vector<std::string> names = {"metrics.jsonl", "presence.csv"};
  const std::string record = read_text_file(run / "summary.json", 1 << 20).value();
  ASSERT_TRUE(write_sums(run, names, "summary.json", record));
  EXPECT_THAT(changed_files(run), ElementsAre());
  write_in_place("new");
  EXPECT_THAT(changed_files(run), ElementsAre("presence.csv"));
}

// A coordinator records them too.
TEST_F(StudyDirectory, FailedRunsAreNamedWithTheirReason) {
  write("a", "0.1", "2");
  ASSERT_TRUE(make_directory(directory_.path() / "b"));
  ASSERT_TRUE(write_durably(directory_.path() / "b" / "run.json",
                            as_bytes(std::string(R"({"state": "failed", "rounds": []})"))));
  const auto study = read_study(directory_.path());
  ASSERT_TRUE(study) << study.error().message();
  EXPECT_EQ(study->runs.size(), 1U);
  ASSERT_EQ(study->left_out.size(), 1U);
  EXPECT_EQ(study->left_out.front().reason, "failed");
  const std::string text =
      R"({"runs": [{"directory": "a", "state": "finished", "reason": null},)"
      R"({"directory": "b", "state": "failed", "reason": "too few clients"},)"
      R"({"directory": "c", "state": "failed", "reason": "no such <graph>"}]})";
  ASSERT_TRUE(write_durably(directory_.path() / "study.json", as_bytes(text)));
  ASSERT_TRUE(make_directory(directory_.path() / "c"));
  const auto told = read_study(directory_.path());
  ASSERT_TRUE(told);
  ASSERT_EQ(told->left_out.size(), 2U);
  EXPECT_EQ(told->left_out[0].reason, "failed: too few clients");
  EXPECT_EQ(told->left_out[1].name, "c");
  EXPECT_THAT(render_report(told->runs, told->left_out),
              HasSubstr("failed: no such &lt;graph&gt;"));
}

TEST_F(StudyDirectory, OfUnfinishedRunsAloneItHasWhatTheyMeasured) {
  for (const char* name : {"a", "b"}) {
    write(name, "0.1", name[0] == 'a' ? "1" : "2");
    const auto run = directory_.path() / name;
    std::filesystem::rename(run / "summary.json", run / kUnfinishedFile);
  }
  const auto study = read_study(directory_.path());
  ASSERT_TRUE(study) << study.error().message();
  ASSERT_EQ(study->runs.size(), 2U);
  EXPECT_TRUE(study->left_out.empty());
  EXPECT_EQ(make_seed_groups(study->runs).means.size(), 2U) << "they are not averaged";
  EXPECT_THAT(render_report(study->runs), HasSubstr("(unfinished)"));
}

TEST_F(StudyDirectory, CurvesOfAnEarlierPageGo) {
  write("a", "0.1", "1");
  write("b", "0.1", "2");
  const auto study = read_study(directory_.path());
  ASSERT_TRUE(study);
  const auto page = directory_.path() / "report.html";
  const auto curves = directory_.path() / "curves";
  ASSERT_TRUE(write_comparison(study->runs, page, {}));
  EXPECT_FALSE(std::filesystem::exists(curves));
  ASSERT_TRUE(make_directory(curves));
  ASSERT_TRUE(write_durably(curves / "old-by-step.svg", ByteView()));
  ASSERT_TRUE(write_durably(curves / "mine.csv", ByteView()));
  ASSERT_TRUE(write_comparison(study->runs, page, {.csv = true}));
  EXPECT_TRUE(std::filesystem::exists(curves / "accuracy-by-step.csv"));
  EXPECT_FALSE(std::filesystem::exists(curves / "accuracy-by-step.svg"));
  EXPECT_FALSE(std::filesystem::exists(curves / "old-by-step.svg"));
  EXPECT_TRUE(std::filesystem::exists(curves / "mine.csv"));
}

TEST(ComparisonText, HasARowForEachGroupOfSeeds) {
  const std::string text = comparison_text(two_groups(), 200);
  EXPECT_THAT(text, HasSubstr("SEEDS"));
  EXPECT_THAT(text, HasSubstr("ring"));
  EXPECT_THAT(text, HasSubstr("0.5500 (0.5000 to 0.6000)"));
  EXPECT_EQ(count_of(text, "\n"), 3U);
}

TEST(ComparisonText, HasAColumnForEachSettingThatDiffers) {
  const std::string text = comparison_text(sample_study(), 80);
  EXPECT_THAT(text, ::testing::MatchesRegex("TOPOLOGY +LOCAL +LEARNING +SEEDS(.|\n)*"));
  std::istringstream lines(text);
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    if (line.starts_with("torus:4x4 ")) ++rows;
  }
  EXPECT_EQ(rows % 9, 0U) << "a line for each setting, in each of the tables";
  EXPECT_LE(count_of(text, "\n"), 2 * (27U + 4) + 1) << "two tables, and a line between them";
}

}  // namespace
}  // namespace starling::report
