// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/text_table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "core/base/word_wrap.h"

namespace starling::telemetry {
namespace {

TextTable clients() {
  TextTable table({"NAME", ">ROWS", "LAST SEEN", "REASON"});
  table.add({"client-1", "123456", "2026-11-20 09:10:11Z", "the file rows.csv is gone"});
  table.add({"c", "7", "-", "-"});
  return table;
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) widest = std::max(widest, columns_of(line));
  return widest;
}

TEST(TextTable, StandsOnOneLineARowWhereThatFits) {
  const std::string text =
      "NAME        ROWS  LAST SEEN             REASON\n"
      "client-1  123456  2026-11-20 09:10:11Z  the file rows.csv is gone\n"
      "c              7  -                     -\n";
  EXPECT_EQ(clients().text(), text);
  EXPECT_EQ(clients().text(widest_line(text)), text);
}

TEST(TextTable, BreaksCellsAtBlanks) {
  EXPECT_EQ(clients().text(44),
            "NAME       ROWS LAST SEEN      REASON\n"
            "client-1 123456 2026-11-20     the file\n"
            "                09:10:11Z      rows.csv is\n"
            "                               gone\n"
            "c             7 -              -\n");
}

TEST(TextTable, BreaksHeadersBeforeCells) {
  TextTable table({">ROUND", ">TRAIN LOSS", "STATE"});
  table.add({"1", "0.1234", "going on"});
  EXPECT_EQ(table.text(24),
            "ROUND   TRAIN  STATE\n"
            "         LOSS\n"
            "    1  0.1234  going on\n");
}

TEST(TextTable, BreaksHeadersAloneWhereRowsStayWhole) {
  TextTable table({">ROUND", ">TRAIN LOSS", "STATE"});
  table.add({"1", "0.1234", "going on"});
  EXPECT_EQ(table.text_in_whole_rows(27), table.text());
  for (const std::size_t columns : {26, 10}) {
    EXPECT_EQ(table.text_in_whole_rows(columns),
              "ROUND   TRAIN  STATE\n"
              "         LOSS\n"
              "    1  0.1234  going on\n");
  }
}

TEST(TextTable, WhatCannotBeBrokenStandsInSeveralTables) {
  TextTable table({"NAME", ">A", ">B", ">C"});
  table.add({"client-1", "0.123456", "1.234567", "2.345678"});
  EXPECT_EQ(table.text(20),
            "NAME            A\n"
            "client-1 0.123456\n"
            "\n"
            "NAME            B\n"
            "client-1 1.234567\n"
            "\n"
            "NAME            C\n"
            "client-1 2.345678\n");
}

TEST(TextTable, NeverExceedsWhatItsWordsNeed) {
  for (std::size_t columns = 30; columns < 80; ++columns) {
    const std::string text = clients().text(columns);
    EXPECT_LE(widest_line(text), columns) << text;
    for (const char* whole : {"123456", "2026-11-20", "09:10:11Z", "rows.csv", "client-1"}) {
      EXPECT_NE(text.find(whole), std::string::npos) << whole << " in " << columns;
    }
  }
}

}  // namespace
}  // namespace starling::telemetry
