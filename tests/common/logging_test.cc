#include "services/common/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// The lines that `log` writes to standard error.
std::vector<std::string> LinesOf(LogFormat format, const std::function<void()>& log) {
  ::testing::internal::CaptureStderr();
  InitLogging("weft-test", format);
  SetLogVerbosity(0);
  log();
  return absl::StrSplit(::testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty());
}

nlohmann::json OnlyLine(const std::function<void()>& log) {
  const std::vector<std::string> lines = LinesOf(LogFormat::kJson, log);
  EXPECT_EQ(lines.size(), 1u);
  return lines.empty() ? nlohmann::json() : nlohmann::json::parse(lines[0], nullptr, false);
}

TEST(LogEventTest, PeopleReadWordsAndFields) {
  EXPECT_EQ(ToText(LogEvent("paused")), "paused");
  EXPECT_EQ(ToText(LogEvent("bucket trained", {{"pass", 3},
                                               {"bucket", "(0,1)"},
                                               {"token", uint64_t{1} << 63},
                                               {"loss", 0.25},
                                               {"again", false}})),
            "bucket trained: pass=3 bucket=(0,1) token=9223372036854775808 loss=0.25 again=false");
}

TEST(LoggingTest, ATextLineHasTimeLevelAndProgram) {
  const auto lines = LinesOf(LogFormat::kText, [] {
    LogWarning("grant is void", {{"token", 7}});
    LogError("it ends");
  });

  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], MatchesRegex("[-0-9]+ [:.0-9]+ W weft-test] grant is void: token=7"));
  EXPECT_THAT(lines[1], EndsWith(" E weft-test] it ends"));
}

TEST(LoggingTest, AJsonLineHasTheFieldsByName) {
  const nlohmann::json line = OnlyLine([] {
    LogInfo("bucket trained",
            {{"pass", 3}, {"bucket", "(0,1)"}, {"token", uint64_t{1} << 63}, {"loss", 0.25}});
  });

  EXPECT_THAT(line["time"].get<std::string>(),
              MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+[.][0-9][0-9][0-9]Z"));
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["program"], "weft-test");
  EXPECT_EQ(line["event"], "bucket trained");
  EXPECT_EQ(line["pass"], 3);
  EXPECT_EQ(line["bucket"], "(0,1)");
  EXPECT_EQ(line["token"], uint64_t{1} << 63);
  EXPECT_EQ(line["loss"], 0.25);
  EXPECT_EQ(line.size(), 8u);
}

TEST(LoggingTest, AJsonLineIsValidWhateverItSays) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);

  const nlohmann::json line = OnlyLine([&] {
    LogError("lines\nand \"quotes\"",
             {{"cause", bytes}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  });

  ASSERT_TRUE(line.is_object());
  EXPECT_EQ(line["event"], "lines\nand \"quotes\"");
  EXPECT_THAT(line["cause"].get<std::string>(), HasSubstr("ABC"));
  EXPECT_TRUE(line["loss"].is_null());
}

TEST(LoggingTest, EveryJsonLineSaysWhichRunAndWho) {
  SetLogContext({{"run", "7f2a"}, {"trainer", "t-0"}});
  const nlohmann::json line = OnlyLine([] { LogInfo("it ends", {{"edges", 5}}); });
  const auto text = LinesOf(LogFormat::kText, [] { LogInfo("it ends"); });
  SetLogContext({});

  EXPECT_EQ(line["run"], "7f2a");
  EXPECT_EQ(line["trainer"], "t-0");
  EXPECT_EQ(line["edges"], 5);
  EXPECT_THAT(text, ElementsAre(EndsWith("] it ends")));
}

TEST(LoggingTest, DebugLinesAreWrittenWhenVerbose) {
  const LogEvent event("grant begins", {{"token", 7}}, LogEvent::Level::kDebug);
  const auto quiet = LinesOf(LogFormat::kText, [&] { Log(event); });
  const auto verbose = LinesOf(LogFormat::kText, [&] {
    SetLogVerbosity(1);
    Log(event);
  });

  EXPECT_THAT(quiet, IsEmpty());
  EXPECT_THAT(verbose, ElementsAre(EndsWith("D weft-test] grant begins: token=7")));
}

}  // namespace
}  // namespace weft
