#include "services/trainer/local/local_stats_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const Stats& stats) {
  Json metrics = Json::object();
  for (const auto& [name, value] : stats.metrics) {
    if (std::isfinite(value)) metrics[name] = value;
  }
  return {{"count", stats.count}, {"metrics", std::move(metrics)}};
}

Stats FromJson(const Json& json) {
  Stats stats;
  const auto count = json.find("count");
  if (count != json.end() && count->is_number_integer()) stats.count = count->get<int64_t>();
  const auto metrics = json.find("metrics");
  if (metrics == json.end() || !metrics->is_object()) return stats;
  for (const auto& [name, value] : metrics->items()) {
    if (value.is_number()) stats.metrics[name] = value.get<double>();
  }
  return stats;
}

// Of a bucket's line; none of others.
std::optional<BucketStats> BucketFromJson(const Json& line) {
  const auto has = [&](const char* key, bool (Json::*is)() const noexcept) {
    return line.contains(key) && (line[key].*is)();
  };
  if (!has("stats", &Json::is_object) || !has("lhs_partition", &Json::is_number_integer) ||
      !has("rhs_partition", &Json::is_number_integer)) {
    return std::nullopt;
  }
  BucketStats stats;
  stats.bucket = {line["lhs_partition"].get<PartitionId>(),
                  line["rhs_partition"].get<PartitionId>()};
  stats.train = FromJson(line["stats"]);
  stats.trained_edges = stats.train.count;
  if (has("eval_stats_before", &Json::is_object)) {
    stats.eval_before = FromJson(line["eval_stats_before"]);
    stats.held_out_edges = stats.eval_before->count;
  }
  if (has("eval_stats_after", &Json::is_object)) {
    stats.eval_after = FromJson(line["eval_stats_after"]);
  }
  return stats;
}

void AddPosition(const PassPosition& position, Json* line) {
  (*line)["epoch_idx"] = position.epoch;
  (*line)["edge_path_idx"] = position.edge_path;
  (*line)["edge_chunk_idx"] = position.edge_chunk;
}

// The average over edges.
Stats Average(const std::vector<const Stats*>& all) {
  Stats average;
  for (const Stats* stats : all) {
    average.count += stats->count;
    for (const auto& [name, value] : stats->metrics) {
      average.metrics[name] += value * static_cast<double>(stats->count);
    }
  }
  for (auto& [name, value] : average.metrics) {
    value = average.count > 0 ? value / static_cast<double>(average.count) : 0;
  }
  return average;
}

std::string LinesOf(const CompletePass& pass, int64_t num_buckets) {
  std::string lines;
  std::vector<const Stats*> evaluations;
  int64_t index = pass.position.pass * num_buckets;
  for (const DoneBucket& bucket : pass.buckets) {
    const BucketStats& stats = bucket.stats;
    Json line = {{"lhs_partition", stats.bucket.lhs},
                 {"rhs_partition", stats.bucket.rhs},
                 {"index", index++},
                 {"stats", ToJson(stats.train)}};
    if (stats.eval_before.has_value()) {
      line["eval_stats_before"] = ToJson(*stats.eval_before);
      evaluations.push_back(&*stats.eval_before);
    }
    if (stats.eval_after.has_value()) line["eval_stats_after"] = ToJson(*stats.eval_after);
    AddPosition(pass.position, &line);
    absl::StrAppend(&lines, line.dump(), "\n");
  }
  if (!evaluations.empty()) {
    Json line;
    AddPosition(pass.position, &line);
    line["index"] = (pass.position.pass + 1) * num_buckets - 1;
    line["eval_stats_chunk_avg"] = ToJson(Average(evaluations));
    absl::StrAppend(&lines, line.dump(), "\n");
  }
  return lines;
}

absl::Status AppendDurably(const std::string& path, absl::string_view bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  absl::Status status;
  while (status.ok() && !bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      status = ErrnoStatus(errno, absl::StrCat("cannot write ", path));
    }
  }
  if (status.ok() && fsync(fd) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("cannot sync ", path));
  }
  close(fd);
  return status;
}

}  // namespace

absl::Status AppendPassStats(const std::string& path, const CompletePass& pass,
                             int64_t num_buckets) {
  return AppendDurably(path, LinesOf(pass, num_buckets));
}

absl::Status TrimPassStats(const std::string& path, int64_t num_passes, int64_t num_buckets) {
  const absl::StatusOr<std::string> contents = ReadFile(path);
  if (absl::IsNotFound(contents.status())) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(contents.status());
  const std::vector<absl::string_view> lines = absl::StrSplit(*contents, '\n');
  // The last line of each kind and index counts: a pass that was trained again replaced the first.
  absl::flat_hash_map<std::pair<int64_t, bool>, size_t> last;
  std::vector<bool> keep(lines.size(), true);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const Json line = Json::parse(lines[i], nullptr, /*allow_exceptions=*/false);
    if (line.is_discarded()) {
      keep[i] = i + 1 < lines.size();  // without a line's end: nobody was told of it
      continue;
    }
    if (!line.is_object() || !line.contains("index") || !line["index"].is_number_integer())
      continue;
    const auto index = line["index"].get<int64_t>();
    keep[i] = index < num_passes * num_buckets;
    const auto [found, is_new] = last.try_emplace({index, line.contains("stats")}, i);
    if (!is_new) {
      keep[found->second] = false;
      found->second = i;
    }
  }
  std::string kept;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (keep[i] && !lines[i].empty()) absl::StrAppend(&kept, lines[i], "\n");
  }
  if (kept == *contents) return absl::OkStatus();
  return WriteFileAtomically(path, kept);
}

absl::StatusOr<std::vector<BucketStats>> ReadPassStats(const std::string& path, int64_t pass,
                                                       int64_t num_buckets) {
  std::vector<BucketStats> buckets;
  const absl::StatusOr<std::string> contents = ReadFile(path);
  if (absl::IsNotFound(contents.status())) return buckets;
  WEFT_RETURN_IF_ERROR(contents.status());
  for (const absl::string_view text : absl::StrSplit(*contents, '\n')) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("index") || !line["index"].is_number_integer()) {
      continue;
    }
    const auto index = line["index"].get<int64_t>();
    if (index < pass * num_buckets || index >= (pass + 1) * num_buckets) continue;
    if (std::optional<BucketStats> stats = BucketFromJson(line)) {
      buckets.push_back(*std::move(stats));
    }
  }
  return buckets;
}

}  // namespace weft
