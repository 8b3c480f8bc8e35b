// SPDX-License-Identifier: Apache-2.0
#include "core/config/documentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/config/binder.h"
#include "tests/config/test_options.h"

namespace starling::config {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kTable =
    R"(| key | default | unit | range | meaning |
|---|---|---|---|---|
| `name` | `"unnamed"` |  |  | shown in lists |
| `seed` | `1` |  |  | of all randomness \| of the run |
| `train.local-epochs` | `2` | epochs | 1 to 1000 | passes over the data |
| `train.learning-rate` | `0.1` |  | at least 0 | step size |
| `train.optimizer` | `"sgd"` |  | sgd, momentum or adam | local steps |
| `train.hidden` | `[200, 200]` |  | 1 to 65536 | widths of layers |
| `train.rates` | `[0.5, 2]` |  | at least 0 | of layers |
| `train.shuffle` | `true` |  | true or false | every epoch |
| `train.local-steps` | `"none"` |  | at least 1 | instead of epochs |
| `round.deadline` | `"1m"` |  | 1ms to 1d | of a round |
| `round.seed` | `5` |  |  | of the cohort |
)";

class Documentation : public ::testing::Test {
 protected:
  Documentation() { options_.bind(binder_); }
  std::string check(const std::string& readme) {
    const auto result = check_documentation(binder_.documents(), "job", readme);
    return result ? "fresh" : result.error().message();
  }

  testing::AllOptions options_;
  Binder binder_;
};

TEST_F(Documentation, IsATable) { EXPECT_EQ(to_markdown(binder_.documents()), kTable); }

TEST_F(Documentation, IsHeldAgainstTheCode) {
  const std::string table(kTable);
  const std::string begin = "# Keys\n<!-- keys: job -->\n";
  const std::string end = "<!-- end -->\nMore.\n";
  EXPECT_EQ(check(begin + table + end), "fresh");
  EXPECT_THAT(check("# Keys\n"), HasSubstr("put it between the lines '<!-- keys: job -->'"));
  EXPECT_THAT(check(begin + table), HasSubstr("is missing"));
  EXPECT_THAT(check("<!-- keys: edge -->\n" + table + end), HasSubstr("is missing"));
  std::string changed = table;
  changed.replace(changed.find("`2`"), 3, "`3`");
  EXPECT_THAT(check(begin + changed + end),
              HasSubstr("in line 7, which should be: | `train.local-epochs` | `2` |"));
  EXPECT_THAT(check(begin + table + "| `train.momentum` | `0` |  |  | old |\n" + end),
              HasSubstr("a line too many, line 16"));
  EXPECT_THAT(check(begin + table.substr(0, table.rfind("| `round.seed`")) + end),
              HasSubstr("in line 15, which should be: | `round.seed`"));
}

}  // namespace
}  // namespace starling::config
