#include "tools/onnxtrain/report/run_table.h"

#include <gtest/gtest.h>

namespace onnxtrain::cli {
namespace {

TEST(TerminalText, CountsTheColumnsOfATerminal) {
  EXPECT_EQ(TextColumns(""), 0);
  EXPECT_EQ(TextColumns("×1.5 µs"), 7);
  EXPECT_EQ(TextColumns("猫 cat"), 6);
  EXPECT_EQ(TextColumns("e\u0301"), 1);  // a combining accent
  EXPECT_EQ(TextColumns("\U0001F600"), 2);
  EXPECT_EQ(TextColumns("caf\xe9"), 4);  // not UTF-8
}

TEST(TerminalText, ClipsBetweenCharacters) {
  EXPECT_EQ(ClipText("short", 5), "short");
  EXPECT_EQ(ClipText("longer", 5), "long…");
  EXPECT_EQ(ClipText("猫猫猫", 5), "猫猫…");
  EXPECT_EQ(ClipText("猫猫猫", 4), "猫…");
  EXPECT_EQ(ClipText("abc", 1), "…");
}

TEST(RunTable, BreaksIntoBlocksThatFit) {
  const RunTable table{.header = {"", "run-a", "run-b", "猫"},
                       .rows = {{"updates", "1", "20", "300"}, {"--model", "a-long-name.onnx", "b", "c"}}};
  EXPECT_EQ(FormatTable(table),
            "                    run-a  run-b   猫\n"
            "updates                 1     20  300\n"
            "--model  a-long-name.onnx      b    c\n");
  EXPECT_EQ(FormatTable(table, 32),
            "                    run-a  run-b\n"
            "updates                 1     20\n"
            "--model  a-long-name.onnx      b\n"
            "\n"
            "          猫\n"
            "updates  300\n"
            "--model    c\n");
  EXPECT_EQ(FormatTable(table, 20),  // a column that is too wide for the terminal is clipped
            "               run-a\n"
            "updates            1\n"
            "--model  a-long-nam…\n"
            "\n"
            "         run-b   猫\n"
            "updates     20  300\n"
            "--model      b    c\n");
}

}  // namespace
}  // namespace onnxtrain::cli
