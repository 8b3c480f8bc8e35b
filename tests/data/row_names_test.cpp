// SPDX-License-Identifier: Apache-2.0
#include "core/data/row_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const Dataset> birds() {
  return Dataset::make({.name = "csv:birds.csv",
                        .shape = {1, 1, 3},
                        .classes = 2,
                        .features = {1, 2, 3, 4, 5, 6},
                        .labels = {1, 0},
                        .class_names = {"finch", "robin"},
                        .feature_names = {"x", "y", "z"}})
      .value();
}

std::string differs(const RowNames& names) {
  auto dataset = birds();
  const auto before = dataset;
  const auto fitted = fit_to(dataset, names);
  EXPECT_EQ(dataset, before);
  return fitted ? "accepted" : fitted.error().code() + ": " + fitted.error().message();
}

TEST(RowNames, ColumnsComeInTheOrderOfTheRun) {
  auto dataset = birds();
  ASSERT_TRUE(fit_to(dataset, {{"z", "x", "y"}, {"finch", "robin"}}).has_value());
  EXPECT_THAT(dataset->features(), ElementsAre(3.0F, 1.0F, 2.0F, 6.0F, 4.0F, 5.0F));
  EXPECT_THAT(dataset->feature_names(), ElementsAre("z", "x", "y"));
  EXPECT_THAT(dataset->labels(), ElementsAre(1, 0));
}

TEST(RowNames, ClassesAreNumberedByTheRun) {
  auto dataset = birds();
  ASSERT_TRUE(fit_to(dataset, {{}, {"robin", "wren", "finch"}}).has_value());
  EXPECT_THAT(dataset->labels(), ElementsAre(0, 2));
  EXPECT_EQ(dataset->classes(), 3);
  ASSERT_TRUE(fit_to(dataset, {{"y", "x", "z"}, {"wren", "finch", "robin"}}).has_value())
      << "another run";
  EXPECT_THAT(dataset->labels(), ElementsAre(2, 1));
  EXPECT_THAT(dataset->row(0), ElementsAre(2.0F, 1.0F, 3.0F));
}

TEST(RowNames, WhatFitsStaysTheSameObject) {
  auto dataset = birds();
  const auto* before = dataset.get();
  ASSERT_TRUE(fit_to(dataset, names_of(*dataset)).has_value());
  EXPECT_EQ(dataset.get(), before);
  ASSERT_TRUE(fit_to(dataset, {{}, {"finch", "robin"}}).has_value());
  EXPECT_EQ(dataset.get(), before);
  auto unnamed =
      Dataset::make(
          {.name = "idx", .shape = {1, 1, 1}, .classes = 1, .features = {1}, .labels = {0}})
          .value();
  before = unnamed.get();
  ASSERT_TRUE(fit_to(unnamed, {{"x"}, {"finch"}}).has_value()) << "it has no names to differ by";
  EXPECT_EQ(unnamed.get(), before);
}

TEST(RowNames, OnlyWhatOthersHoldIsCopied) {
  auto dataset = birds();
  const float* const own = dataset->features().data();
  ASSERT_TRUE(fit_to(dataset, {{"z", "x", "y"}, {"finch", "robin"}}).has_value());
  EXPECT_EQ(dataset->features().data(), own);
  const auto held = dataset;
  ASSERT_TRUE(fit_to(dataset, {{"x", "y", "z"}, {"finch", "robin"}}).has_value());
  EXPECT_THAT(held->row(0), ElementsAre(3.0F, 1.0F, 2.0F));
  EXPECT_THAT(dataset->row(0), ElementsAre(1.0F, 2.0F, 3.0F));
}

TEST(RowNames, WhatDiffersIsRefusedByTheNamesOfTheRun) {
  const RowNames fitting = names_of(*birds());
  EXPECT_EQ(
      differs({{"x", "y", "w"}, fitting.classes}),
      "columns-differ: the columns of the data are not those that the run was made for: it has "
      "no 'w', and 1 column that the run has not");
  EXPECT_THAT(differs({{"x", "y"}, fitting.classes}),
              HasSubstr("for: 1 column that the run has not"));
  EXPECT_THAT(differs({{"x", "y", "z", "w"}, fitting.classes}), HasSubstr("for: it has no 'w'"));
  EXPECT_THAT(differs({{"x", "y", "z", "x"}, fitting.classes}), HasSubstr("columns-differ"))
      << "a run that names one twice";
  EXPECT_EQ(differs({{}, {"finch", "wren"}}),
            "unknown-class: 1 label of the data is no class of the run, which are 'finch', 'wren'")
      << "what the device holds stays there";
  auto numbered = Dataset::make({.name = "csv:n.csv",
                                 .shape = {1, 1, 1},
                                 .classes = 1,
                                 .features = {1},
                                 .labels = {0},
                                 .class_column = "kind"})
                      .value();
  EXPECT_EQ(
      fit_to(numbered, {{}, {"finch", "robin"}}).error().message(),
      "the labels of the data are numbers, and the run's classes are texts: 'finch', 'robin'");
  EXPECT_THAT(differs(RowNames()), HasSubstr("text-labels"));
}

TEST(RowNames, AnErrorAboutOnesOwnFilesNamesWhatDiffers) {
  const auto differs = [](std::shared_ptr<const Dataset> dataset, const RowNames& names) {
    const auto fitted = fit_to(dataset, names, {"csv:birds.csv", "csv:train.csv", false});
    return fitted ? "accepted" : fitted.error().message();
  };
  EXPECT_EQ(
      differs(birds(), {{"x", "y", "w"}, {"finch", "robin"}}),
      "the columns of csv:birds.csv are not those of csv:train.csv: it has no 'w', and it has "
      "'z', which csv:train.csv has not");
  EXPECT_EQ(differs(birds(), {{"x", "y"}, {"finch", "robin"}}),
            "the columns of csv:birds.csv are not those of csv:train.csv: it has 'z', which "
            "csv:train.csv has not");
  EXPECT_EQ(differs(birds(), {{}, {"finch", "wren"}}),
            "the label 'robin' of csv:birds.csv is no class of csv:train.csv, which are 'finch', "
            "'wren'");
  EXPECT_EQ(differs(birds(), {{}, {"owl", "wren"}}),
            "the labels 'finch', 'robin' of csv:birds.csv are no classes of csv:train.csv, which "
            "are 'owl', 'wren'");
  EXPECT_EQ(differs(birds(), {}),
            "the labels of csv:birds.csv are texts, and those of csv:train.csv are numbers: write "
            "both alike");
}

// It has no labels that could be written alike.
TEST(RowNames, OfAJobThatDoesNotNameTheClassesItIsSaidHow) {
  auto dataset = birds();
  EXPECT_EQ(fit_to(dataset, {}, {"csv:birds.csv", "the job", false, true}).error().message(),
            "the labels of csv:birds.csv are texts, and the job does not say which class each one "
            "is: set data.class-names in it, or write the classes' numbers, from 0");
  EXPECT_EQ(fit_to(dataset, {}).error().message(),
            "the labels of the data are texts, and the run does not say which class each one is: "
            "set data.class-names in its job, or write the classes' numbers, from 0");
}

}  // namespace
}  // namespace starling::data
