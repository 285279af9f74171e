// What the tests of a run on one machine look at: its folder, its statistics.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "services/trainer/local/local_run.h"
#include "tests/trainer/local_run_fixture.h"

namespace weft::testing {

inline std::string ReadOrEmpty(const std::string& path) { return ReadFile(path).value_or(""); }

// Opens the run and trains it, to its end or for some grants.
inline absl::Status Train(const RunConfig& config, const LocalDataOptions& data,
                          int grants = INT32_MAX) {
  WEFT_ASSIGN_OR_RETURN(const auto run, LocalRun::Open(config, {}));
  return CountingTrainer(run.get(), data).Train(grants);
}

// Every file below a folder with its contents.
inline std::map<std::string, std::string> Contents(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == "lock") continue;
    contents[entry.path().string()] = ReadOrEmpty(entry.path().string());
  }
  return contents;
}

// Opening with `config` fails like `matcher` and changes nothing in the checkpoint folder.
template <typename Matcher>
void ExpectRefused(const RunConfig& config, const Matcher& matcher) {
  const auto before = Contents(config.checkpoint_path);
  EXPECT_THAT(LocalRun::Open(config, {}), matcher);
  EXPECT_EQ(Contents(config.checkpoint_path), before);
}

inline std::vector<nlohmann::json> StatsLines(const RunConfig& config) {
  std::vector<nlohmann::json> lines;
  const std::string text = ReadOrEmpty(config.checkpoint_path + "/training_stats.json");
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

inline std::vector<int64_t> Indices(const RunConfig& config) {
  std::vector<int64_t> indices;
  for (const nlohmann::json& line : StatsLines(config)) indices.push_back(line["index"]);
  return indices;
}

inline std::string VersionText(const RunConfig& config) {
  return ReadOrEmpty(config.checkpoint_path + "/checkpoint_version.txt");
}

}  // namespace weft::testing
