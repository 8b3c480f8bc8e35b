// SPDX-License-Identifier: Apache-2.0
#include "core/data/csv_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/rng.h"
#include "tests/data/dataset_files.h"
#include "tests/support/temporary_directory.h"

namespace starling::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CsvReader : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Dataset>> load(std::string_view text,
                                              const LoadOptions& options = {}) {
    const auto path = starling::testing::write_file(directory_.path() / "a.csv", text);
    return load_dataset({DatasetKind::kCsv, path.string()}, options);
  }
  std::string refusal(std::string_view text, const LoadOptions& options = {}) {
    const auto result = load(text, options);
    return result ? "accepted" : result.error().code() + ": " + result.error().message();
  }
  std::vector<std::vector<std::string>> records(std::string_view text) {
    const auto path = starling::testing::write_file(directory_.path() / "r.csv", text);
    CsvRecords reader = CsvRecords::open(path, 1 << 20).value();
    std::vector<std::vector<std::string>> all;
    std::vector<std::string> fields;
    while (reader.next(fields).value()) all.push_back(fields);
    return all;
  }

  starling::testing::TemporaryDirectory directory_;
};

TEST_F(CsvReader, FollowsRfc4180) {  // the examples of its section 2
  using Records = std::vector<std::vector<std::string>>;
  EXPECT_EQ(records("aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n"),
            (Records{{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(records("aaa,bbb,ccc\r\nzzz,yyy,xxx"),
            (Records{{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(records("\"aaa\",\"bbb\",\"ccc\"\r\nzzz,yyy,xxx"),
            (Records{{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(records("\"aaa\",\"b\r\nbb\",\"ccc\"\r\nzzz,yyy,xxx"),
            (Records{{"aaa", "b\r\nbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(records("\"aaa\",\"b\"\"bb\",\"ccc\""), (Records{{"aaa", "b\"bb", "ccc"}}));
  EXPECT_EQ(records(" a ,,\"\"\n,\n"), (Records{{" a ", "", ""}, {"", ""}}))
      << "spaces belong to a field";
}

std::string random_text(Rng& rng, std::string_view alphabet, std::size_t length_max) {
  std::string text(rng.below(length_max + 1), ' ');
  for (char& c : text) c = alphabet[rng.below(alphabet.size())];
  return text;
}

TEST_F(CsvReader, ReadsBackWhateverIsQuoted) {
  Rng rng({.seed = 7});
  for (int i = 0; i < 300; ++i) {
    std::vector<std::vector<std::string>> written(1 + rng.below(4));
    std::string text;
    for (auto& record : written) {
      record.resize(1 + rng.below(4));
      for (std::size_t j = 0; j < record.size(); ++j) {
        record[j] = random_text(rng, ",\"\r\n a\xC3", 6);
        text += j > 0 ? ",\"" : "\"";
        for (char c : record[j]) text += c == '"' ? "\"\"" : std::string(1, c);
        text += '"';
      }
      text += rng.below(2) == 0 ? "\n" : "\r\n";
    }
    ASSERT_EQ(records(text), written) << text;
  }
}

TEST_F(CsvReader, AnyTextIsReadOrRefused) {
  Rng rng({.seed = 8});
  int accepted = 0;
  for (int i = 0; i < 1200; ++i) {
    const auto dataset = load("x,label\n1," + random_text(rng, ",\n\r\"12a.", 6));
    if (!dataset) continue;
    ++accepted;
    EXPECT_EQ((*dataset)->features().size(), (*dataset)->rows());
  }
  EXPECT_GT(accepted, 100);
}

TEST_F(CsvReader, PassesOverByteOrderMarkAndEmptyLines) {
  EXPECT_EQ(records("\xEF\xBB\xBF\"a\",b\n\n\r\n1,2\n\n"),
            (std::vector<std::vector<std::string>>{{"a", "b"}, {"1", "2"}}));
  EXPECT_TRUE(records("").empty());
  EXPECT_EQ(records("a").size(), 1U);
}

TEST_F(CsvReader, SemicolonsAndTabsAreRecognised) {
  using Records = std::vector<std::vector<std::string>>;
  EXPECT_EQ(records("a;b;c\n1;2,5;3\n"), (Records{{"a", "b", "c"}, {"1", "2,5", "3"}}));
  EXPECT_EQ(records("\n\xEF\xBB\xBF"), (Records{{"\xEF\xBB\xBF"}}));
  EXPECT_EQ(records("\xEF\xBB\xBF\r\na\tb\n1\t\"2\t\"\n"), (Records{{"a", "b"}, {"1", "2\t"}}));
  EXPECT_EQ(records("\"a;b\nc;d\",e\n1,2\n"), (Records{{"a;b\nc;d", "e"}, {"1", "2"}}))
      << "what stands in quotes separates nothing";
  EXPECT_EQ(records("a;b,c\n1,2\n"), (Records{{"a;b", "c"}, {"1", "2"}})) << "a comma in doubt";
  const auto dataset = load("x;y;kind\n1;-2.5;0\n3;4;2\n").value();
  EXPECT_THAT(dataset->features(), ElementsAre(1.0F, -2.5F, 3.0F, 4.0F));
  EXPECT_THAT(refusal("x;y;kind\n1;2,5;0\n"),
              HasSubstr("line 2, column 'y': '2,5' is not a number that float32 can hold; write "
                        "decimals with a point"));
}

TEST_F(CsvReader, AHeaderThatLooksLikeDataIsRefused) {
  EXPECT_THAT(refusal("5.1,3.5,1.4,setosa\n4.9,3.0,1.4,setosa\n"),
              HasSubstr("has no header row: its first line holds numbers where the line below has "
                        "them; write the names"));
  EXPECT_THAT(refusal("1,2,cat\n5,6,dog\n"), HasSubstr("has no header row"));
  EXPECT_THAT(refusal(",x,label\n0,1,0\n"), HasSubstr("column 1 has no name"));
  EXPECT_EQ(load("0,1,2,label\n1,2,3,0\n").value()->shape().width, 3) << "as pandas names them";
  EXPECT_EQ(load("0,1,2,label\n1,2,3,cat\n").value()->class_names().size(), 1U);
  EXPECT_EQ(load("1990,1991,label\n1,2,0\n").value()->shape().width, 2) << "years";
  EXPECT_EQ(load("nan,inf,label\n1,2,0\n").value()->shape().width, 2);
  EXPECT_EQ(load("label,1,2\n0,2,3\n").value()->shape().width, 2);
}

TEST_F(CsvReader, NamesAreUtf8) {
  EXPECT_THAT(refusal("Gr\xF6\xDF"
                      "e,label\n1,0\n"),
              HasSubstr("the name of column 1 is not UTF-8"));
  EXPECT_THAT(refusal("x,label\n1,Gr\xFCn\n"), HasSubstr("has labels that are not UTF-8"));
  EXPECT_TRUE(
      load("Gr\xC3\xB6\xC3\x9F"
           "e,label\n1,Gr\xC3\xBCn\n"));
}

TEST_F(CsvReader, TheLastColumnIsTheClass) {
  const auto dataset = load("x,y,kind\n1,-2.5,0\n+3e2, 4 ,2\n").value();
  EXPECT_THAT(dataset->features(), ElementsAre(1.0F, -2.5F, 300.0F, 4.0F));
  EXPECT_THAT(dataset->labels(), ElementsAre(0, 2));
  EXPECT_EQ(dataset->classes(), 3);
  EXPECT_EQ(dataset->shape(), (Shape{1, 1, 2}));
  EXPECT_TRUE(dataset->class_names().empty());
}

TEST_F(CsvReader, TheColumnCalledLabelIsTheClassWhereverItStands) {
  const auto dataset = load("x,label,y\n1,1,2\n3,0.0,4\n").value();
  EXPECT_THAT(dataset->features(), ElementsAre(1.0F, 2.0F, 3.0F, 4.0F));
  EXPECT_THAT(dataset->labels(), ElementsAre(1, 0));
  EXPECT_THAT(dataset->feature_names(), ElementsAre("x", "y"));
}

TEST_F(CsvReader, TextLabelsAreNumberedInSortedOrder) {
  const auto dataset = load("x,label\n1,robin\n2,\"finch, red\"\n3,robin\n4,7\n").value();
  EXPECT_THAT(dataset->class_names(), ElementsAre("7", "finch, red", "robin"));
  EXPECT_THAT(dataset->labels(), ElementsAre(2, 1, 2, 0));
  EXPECT_THAT(refusal("x,label\n1,a\n2,b\n", {.classes = 3}), HasSubstr("write integers"))
      << "another device would number them differently";
  EXPECT_THAT(refusal("x,label\n1,0\n2,1\n3,2x\n", {.classes = 2}),
              HasSubstr("write integers: line 4, column 'label' has '2x'"));
}

TEST_F(CsvReader, ErrorsNameLineAndColumn) {
  EXPECT_THAT(refusal("x,petal,c\n1,2,0\n1,wide,0\n"),
              HasSubstr("a.csv, line 3, column 'petal': 'wide' is not a number"));
  EXPECT_THAT(refusal("x,y,c\n1,\"2\n\",0\n1,,0\n"),
              HasSubstr("line 2, column 'y': '2?' is not a number"));
  EXPECT_THAT(refusal("x,y,c\n\n\n1,,0\n"), HasSubstr("line 4, column 'y': the value is missing"));
  EXPECT_THAT(refusal("x,y,c\n1,2,0\n1,2\n"), HasSubstr("line 3: 2 fields, but the header has 3"));
  EXPECT_THAT(refusal("x,y,c\n1,2,\n"), HasSubstr("line 2, column 'c': the label is missing"));
}

TEST_F(CsvReader, RefusesBrokenQuoting) {
  EXPECT_THAT(refusal("x,c\n1\"2,0\n"), HasSubstr("line 2, column 1: a quote stands inside"));
  EXPECT_THAT(refusal("x,c\n1,\"0\"x\n"), HasSubstr("line 2, column 2: text follows"));
  EXPECT_THAT(refusal("x,c\n1,\"0\n2,3\n"), HasSubstr("the quoted field is never closed"));
  EXPECT_THAT(refusal("x,c\r1,0\r"), HasSubstr("a carriage return stands alone"));
}

TEST_F(CsvReader, RefusesWhatIsNotFinite) {
  for (const char* value : {"nan", "inf", "-inf", "1e39", "1e999"}) {
    EXPECT_THAT(refusal(std::string("x,c\n") + value + ",0\n"), HasSubstr("line 2, column 'x'"))
        << value;
  }
  EXPECT_EQ(load("x,c\n1e-60,0\n").value()->features()[0], 0.0F);
}

TEST_F(CsvReader, RefusesLabelsThatCannotBeClasses) {
  EXPECT_THAT(refusal("x,c\n1,-1\n1,1\n"), HasSubstr("classes count from 0"));
  EXPECT_THAT(refusal("x,c\n1,0\n1,0.5\n1,1.5\n"),
              HasSubstr("a.csv, line 3, column 'c': 0.5 is not a class; classes count from 0"));
  // The class stands first here, and is not called so.
  constexpr const char* kWhich =
      "; the class is the column 'label', or the last one where there is none";
  EXPECT_THAT(refusal("kind,x\n1,0.5\n0,1.5\n"), HasSubstr(kWhich));
  EXPECT_THAT(refusal("kind,x\nred,0\nblue,1\n"),
              HasSubstr("column 'kind': 'red' is not a number that float32 can hold" +
                        std::string(kWhich)));
  EXPECT_THAT(refusal("label,x\n0.5,0.5\n1,1\n"), Not(HasSubstr(kWhich)));
  EXPECT_THAT(refusal("label,x\n1,red\n1,1\n"), Not(HasSubstr(kWhich)));
  EXPECT_EQ(load("x,c\n1,0\n1,0.5\n1,high\n").value()->classes(), 3) << "they are texts";
  EXPECT_THAT(refusal("x,c\n1,2000000000\n"), HasSubstr("label-out-of-range"));
  EXPECT_THAT(refusal("x,c\n1,0\n1,5\n", {.classes = 5}), HasSubstr("the model has 5 classes"));
}

TEST_F(CsvReader, RefusesFilesWithoutRowsOrColumns) {
  EXPECT_THAT(refusal(""), HasSubstr("is empty"));
  EXPECT_THAT(refusal("5.1,3.5,0\n4.9,3.0,1\n"), HasSubstr("its first line holds only numbers"));
  EXPECT_THAT(refusal("x,y, x,c\n1,2,3,0\n"), HasSubstr("two columns called 'x'"));
  EXPECT_THAT(refusal("x,c\n"), HasSubstr("has no rows"));
  EXPECT_THAT(refusal("c\n1\n"), HasSubstr("needs a column for the class and at least one more"));
  EXPECT_THAT(load_dataset({DatasetKind::kCsv, "/nowhere.csv"}).error().message(),
              HasSubstr("there is no file /nowhere.csv"));
}

TEST_F(CsvReader, RefusesWhatExceedsItsLimits) {
  EXPECT_THAT(refusal("x,c\n1,0\n1,0\n", {.rows_max = 1}), HasSubstr("dataset-too-large"));
  EXPECT_THAT(refusal("x,c\n1,0\n1,0\n", {.bytes_max = 10}), HasSubstr("dataset-too-large"));
  EXPECT_THAT(refusal("x,c\n" + std::string(1 << 17, '1') + ",0\n"), HasSubstr("too long"));
}

TEST_F(CsvReader, AColumnCanDivideTheRowsInsteadOfBeingAFeature) {
  const char* text = "user,x,label\nmia,1,0\nzoe,2,1\nadam,3,0\nzoe,4,1\n";
  const auto dataset = load(text, {.group_column = "user"}).value();
  EXPECT_THAT(dataset->features(), ElementsAre(1.0F, 2.0F, 3.0F, 4.0F));
  EXPECT_THAT(dataset->row_labels().group_names, ElementsAre("adam", "mia", "zoe"));
  EXPECT_THAT(dataset->row_labels().groups, ElementsAre(1U, 2U, 0U, 2U));
  EXPECT_THAT(refusal(text, {.group_column = "usr"}),
              HasSubstr("has no column 'usr'; did you mean 'user'?"));
  EXPECT_THAT(refusal(text, {.group_column = "label"}), HasSubstr("dataset-column"));
  EXPECT_THAT(refusal(text), HasSubstr("'mia' is not a number")) << "nobody said it is an id";
}

TEST_F(CsvReader, APartNeedsOnlyItsOwnRowsToBeNumbers) {
  const char* text = "user,x,label\nmia,1,0\nzoe,2,1\nadam,broken,0\nzoe,4,1\n";
  const auto path = starling::testing::write_file(directory_.path() / "n.csv", text);
  const auto spec = PartitionSpec::parse("natural:column=user,index=3,of=3").value();
  const auto zoe = load_part({DatasetKind::kCsv, path.string()}, spec).value();
  EXPECT_THAT(zoe->features(), ElementsAre(2.0F, 4.0F));
  EXPECT_THAT(zoe->labels(), ElementsAre(1, 1));
  EXPECT_EQ(zoe->classes(), 2);
}

}  // namespace
}  // namespace starling::data
