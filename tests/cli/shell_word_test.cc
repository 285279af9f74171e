#include "cli/shell_word.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

TEST(ShellWordTest, PlainWordsStayAsTheyAre) {
  EXPECT_EQ(ShellWord("data/run-1_a.json"), "data/run-1_a.json");
}

TEST(ShellWordTest, WhatAShellWouldReadOtherwiseIsQuoted) {
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("a b"), "'a b'");
  EXPECT_EQ(ShellWord("$HOME;*"), "'$HOME;*'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord("\xC3\xBC"), "'\xC3\xBC'");
}

}  // namespace
}  // namespace weft::cli
