#include "cli/train_report.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/progress.h"
#include "cli/shell_word.h"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

// ", loss 0.211"
std::string Loss(const Stats& train) {
  const std::optional<double> loss = train.Find("loss");
  return loss.has_value() ? absl::StrFormat(", loss %.4g", *loss) : "";
}

// "; held-out mrr 0.311 -> 0.325" or, without ranks, the loss.
std::string HeldOut(const std::optional<Stats>& before, const std::optional<Stats>& after) {
  if (!before.has_value() || !after.has_value()) return "";
  for (const char* name : {"mrr", "loss"}) {
    const auto was = before->Find(name);
    const auto is = after->Find(name);
    if (was.has_value() && is.has_value()) {
      return absl::StrFormat("; held-out %s %.4g -> %.4g", name, *was, *is);
    }
  }
  return "";
}

std::string Speed(int64_t edges, double seconds) {
  if (edges == 0 || seconds <= 0) return "";
  return absl::StrCat(", ", FormatRate(static_cast<double>(edges) / seconds), " edges/s");
}

Json ToJson(const Stats& stats) {
  Json json = {{"count", stats.count}};
  for (const auto& [name, value] : stats.metrics) json[name] = value;
  return json;
}

Json ToJson(const EpochSummary& epoch) {
  Json json = {{"epoch", epoch.epoch + 1},
               {"loss", nullptr},
               {"trained_edges", epoch.trained_edges},
               {"held_out_edges", epoch.held_out_edges},
               {"train_seconds", epoch.train_seconds},
               {"edges_per_second", epoch.EdgesPerSecond()}};
  for (const auto& [name, value] : epoch.train.metrics) json[name] = value;
  if (epoch.eval_before.has_value()) json["eval_before"] = ToJson(*epoch.eval_before);
  if (epoch.eval_after.has_value()) json["eval_after"] = ToJson(*epoch.eval_after);
  return json;
}

}  // namespace

std::string EpochLine(const EpochSummary& epoch, int num_epochs) {
  return absl::StrCat("epoch ", epoch.epoch + 1, "/", num_epochs, ": ",
                      FormatCount(epoch.trained_edges), " edges", Loss(epoch.train),
                      Speed(epoch.trained_edges, epoch.train_seconds),
                      HeldOut(epoch.eval_before, epoch.eval_after));
}

std::string BucketLine(const BucketStats& stats) {
  return absl::StrCat("bucket (", stats.bucket.lhs, ", ", stats.bucket.rhs,
                      "): ", FormatCount(stats.trained_edges), " edges", Loss(stats.train),
                      Speed(stats.trained_edges, stats.train_seconds),
                      HeldOut(stats.eval_before, stats.eval_after));
}

std::string LastLines(const TrainReport& report, const std::string& config_path) {
  const RunProgress& progress = report.progress;
  const std::string& folder = report.config->checkpoint_path;
  const std::string where =
      report.checkpoint_version > 0
          ? absl::StrCat("version ", report.checkpoint_version, " in ", folder)
          : absl::StrCat("no version in ", folder, " yet");
  const TrainingSummary& summary = report.summary;
  std::string text =
      absl::StrCat("trained ", FormatCount(summary.trained_edges), " edges in ",
                   absl::StrFormat("%.1f", summary.train_seconds), " s",
                   Speed(summary.trained_edges, summary.train_seconds), ", peak memory ",
                   FormatCount(report.peak_memory_bytes >> 20), " MB\n");
  if (!progress.done) {
    absl::StrAppend(&text, "stopped in epoch ", progress.position.epoch + 1, "/",
                    progress.num_epochs, "; kept: ", where);
    if (progress.buckets > 1) {
      absl::StrAppend(&text, ", and ", FormatCount(progress.buckets_done), " of ",
                      FormatCount(progress.buckets), " buckets of the next");
    }
    absl::StrAppend(&text, "\n`weft train ", ShellWord(config_path), "` goes on from there\n");
    return text;
  }
  if (progress.stopped_early) {
    absl::StrAppend(&text, "stopped early after ", progress.position.epoch, " of ",
                    progress.num_epochs, " epochs: no better value in ",
                    report.config->early_stopping->patience, "; best: version ",
                    progress.early_stopping.best_version, "; ");
  } else {
    absl::StrAppend(&text, "complete (", progress.position.epoch, "/", progress.num_epochs,
                    " epochs): ");
  }
  return absl::StrCat(text, where, "\n");
}

std::string ReportToJson(const TrainReport& report) {
  const RunProgress& progress = report.progress;
  Json epochs = Json::array();
  for (const EpochSummary& epoch : report.epochs) epochs.push_back(ToJson(epoch));
  Json json = {{"edges_per_second", report.summary.edges_per_second},
               {"loss", epochs.empty() ? Json(nullptr) : epochs.back()["loss"]},
               {"trained_edges", report.summary.trained_edges},
               {"train_seconds", report.summary.train_seconds},
               {"seconds", report.seconds},
               {"peak_memory_bytes", report.peak_memory_bytes},
               {"threads", report.threads},
               {"compute", report.config->compute == Compute::kFused ? "fp32" : "reference"},
               {"seed", report.config->seed.value_or(0)},
               {"complete", progress.done},
               {"stopped_early", progress.stopped_early},
               {"num_epochs", progress.num_epochs},
               {"epochs_done", progress.position.epoch},
               {"checkpoint_path", report.config->checkpoint_path},
               {"checkpoint_version", report.checkpoint_version},
               {"epochs", std::move(epochs)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace weft::cli
