#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace weft::cli {
namespace {

using ::testing::HasSubstr;

ProgressState Import() {
  ProgressState state;
  state.title = "import";
  state.unit = "edges";
  state.done = 1'500'000;
  state.total = 3'000'000;
  state.elapsed = absl::Seconds(30);
  return state;
}

TEST(FormatCountTest, GroupsThousands) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-1234), "-1,234");
}

TEST(FormatRateTest, ScalesToThreeDigits) {
  EXPECT_EQ(FormatRate(0), "0");
  EXPECT_EQ(FormatRate(12.345), "12.3");
  EXPECT_EQ(FormatRate(166'000), "166 k");
  EXPECT_EQ(FormatRate(2'512'345), "2.51 M");
}

TEST(FormatRateTest, WhatRoundsUpToAThousandHasTheNextUnit) {
  EXPECT_EQ(FormatRate(999.4), "999");
  EXPECT_EQ(FormatRate(999.8), "1 k");
  EXPECT_EQ(FormatRate(999'900), "1 M");
}

TEST(FormatBytesTest, ScalesByThousands) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(42'795'887), "42.8 MB");
}

TEST(FormatElapsedTest, ShowsHoursOnlyWhenThereAreSome) {
  EXPECT_EQ(FormatElapsed(absl::Milliseconds(400)), "0:00");
  EXPECT_EQ(FormatElapsed(absl::Seconds(41)), "0:41");
  EXPECT_EQ(FormatElapsed(absl::Seconds(725)), "12:05");
  EXPECT_EQ(FormatElapsed(absl::Minutes(187)), "3:07:00");
}

TEST(FormatProgressTest, BarShowsShareRateAndRemainingTime) {
  EXPECT_EQ(
      FormatProgressBar(Import(), 100),
      "import  50% [###############...............]  1,500,000/3,000,000 edges  50 k edges/s  "
      "0:30 left");
}

TEST(FormatProgressTest, BarIsLeftOutWhenTheTerminalIsNarrow) {
  EXPECT_EQ(FormatProgressBar(Import(), 40), "import  50%  1,500,000/3,000,000 edges  ");
}

TEST(FormatProgressTest, CutsBetweenCharacters) {
  ProgressState state = Import();
  state.total.reset();
  state.title = "caf\xC3\xA9s";

  EXPECT_EQ(FormatProgressBar(state, 4), "caf\xC3\xA9");
}

TEST(FormatProgressTest, WithoutATotalThereIsNoShare) {
  ProgressState state = Import();
  state.total.reset();

  EXPECT_EQ(FormatProgressLine(state), "import: 1,500,000 edges, 50 k edges/s");
}

TEST(FormatProgressTest, LineShowsTheNote) {
  ProgressState state = Import();
  state.note = "loss 0.2";

  EXPECT_EQ(FormatProgressLine(state),
            "import: 1,500,000/3,000,000 edges (50%), 50 k edges/s, 0:30 left, loss 0.2");
}

TEST(FormatProgressTest, MoreThanTheTotalIsAllOfIt) {
  ProgressState state = Import();
  state.done = 4'000'000;

  EXPECT_THAT(FormatProgressLine(state), HasSubstr("(100%)"));
}

TEST(FormatProgressTest, BytesAreScaled) {
  ProgressState state = Import();
  state.unit = "bytes";

  EXPECT_EQ(FormatProgressLine(state), "import: 1.5 MB/3 MB (50%), 50 kB/s, 0:30 left");
}

TEST(FormatProgressTest, SummaryShowsTimeAndMeanRate) {
  EXPECT_EQ(FormatProgressSummary(Import()), "import: 1,500,000 edges in 30.0 s (50 k edges/s)");
}

class ProgressReporterTest : public ::testing::Test {
 protected:
  ~ProgressReporterTest() override { std::fclose(out_); }

  ProgressReporter::Options Options(ProgressMode mode) const {
    ProgressReporter::Options options;
    options.title = "import";
    options.unit = "edges";
    options.total = 8000;
    options.mode = mode;
    options.out = out_;
    return options;
  }
  std::string Output() const {
    std::string text(1 << 20, '\0');
    const ssize_t size = pread(fileno(out_), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
    return text;
  }

  std::FILE* const out_ = std::tmpfile();
};

TEST_F(ProgressReporterTest, CountsFromAllThreads) {
  ProgressReporter progress(Options(ProgressMode::kLines));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) progress.Add(2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  progress.Finish();

  EXPECT_THAT(Output(), HasSubstr("import: 8,000 edges in "));
}

TEST_F(ProgressReporterTest, BarIsErasedBeforeTheSummary) {
  ProgressReporter::Options options = Options(ProgressMode::kBar);
  options.bar_interval = absl::Milliseconds(1);
  ProgressReporter progress(options);
  progress.SetDone(4000);
  while (Output().find("4,000/8,000") == std::string::npos) std::this_thread::yield();
  progress.Finish();

  EXPECT_THAT(Output(), HasSubstr("\r\x1b[Kimport: 4,000 edges in "));
}

TEST_F(ProgressReporterTest, OffPrintsMessagesOnly) {
  ProgressReporter progress(Options(ProgressMode::kOff));
  progress.Print("2 lines skipped");
  progress.Finish();

  EXPECT_EQ(Output(), "2 lines skipped\n");
}

TEST_F(ProgressReporterTest, AbandonPrintsNoSummary) {
  ProgressReporter progress(Options(ProgressMode::kLines));
  progress.Abandon();

  EXPECT_EQ(Output(), "");
}

TEST_F(ProgressReporterTest, AnOutputThatIsNoTerminalGetsLines) {
  ProgressReporter::Options options = Options(ProgressMode::kAuto);
  options.line_interval = absl::Milliseconds(1);
  ProgressReporter progress(options);
  while (Output().find("import: 0/8,000 edges (0%)") == std::string::npos) {
    std::this_thread::yield();
  }
  progress.Abandon();

  EXPECT_THAT(Output(), ::testing::Not(HasSubstr("\r")));
}

}  // namespace
}  // namespace weft::cli
