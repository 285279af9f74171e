#include "services/trainer/cluster/trainer_metrics.h"

#include <iterator>

namespace weft {
namespace {

constexpr absl::string_view kPhases[] = {"wait", "load", "train", "evaluate", "finish", "store"};
static_assert(std::size(kPhases) == static_cast<size_t>(TrainingPhase::kCount));

}  // namespace

void TrainerMetrics::SetThreads(int threads) {
  MutexLock lock(&mu_);
  threads_ = threads;
}

void TrainerMetrics::OnProgress(const TrainingProgress& progress) {
  if (progress.phase != TrainingProgress::Phase::kTraining || progress.done_edges == 0) return;
  const double seconds = phases_.SecondsUnderWay(TrainingPhase::kTrain);
  MutexLock lock(&mu_);
  const bool same = progress.bucket == bucket_ && progress.done_edges >= bucket_edges_;
  edges_ += progress.done_edges - (same ? bucket_edges_ : 0);
  bucket_ = progress.bucket;
  bucket_edges_ = progress.done_edges;
  loss_ = progress.loss;
  if (seconds > 0) edges_per_second_ = static_cast<double>(progress.done_edges) / seconds;
}

void TrainerMetrics::OnBucketTrained(const BucketStats& stats) {
  MutexLock lock(&mu_);
  edges_ += stats.trained_edges - (stats.bucket == bucket_ ? bucket_edges_ : 0);
  bucket_ = {-1, -1};
  bucket_edges_ = 0;
  ++buckets_;
  if (stats.train_seconds > 0) {
    edges_per_second_ = static_cast<double>(stats.trained_edges) / stats.train_seconds;
  }
  if (const auto loss = stats.train.Find("loss")) loss_ = loss;
  mrr_before_ = stats.eval_before.has_value() ? stats.eval_before->Find("mrr") : std::nullopt;
  mrr_after_ = stats.eval_after.has_value() ? stats.eval_after->Find("mrr") : std::nullopt;
}

void TrainerMetrics::Write(MetricsPage* page) const {
  for (size_t i = 0; i < std::size(kPhases); ++i) {
    page->AddCounter("weft_trainer_phase_seconds_total",
                     "Time by phase; store goes on beside the others.", {{"phase", kPhases[i]}},
                     phases_.Seconds(static_cast<TrainingPhase>(i)));
  }
  MutexLock lock(&mu_);
  page->AddCounter("weft_trainer_trained_edges_total",
                   "Edges trained, those of unfinished and lost buckets too.", {},
                   static_cast<double>(edges_));
  page->AddCounter("weft_trainer_trained_buckets_total", "Buckets trained.", {},
                   static_cast<double>(buckets_));
  page->AddGauge("weft_trainer_edges_per_second",
                 "Edges trained a second of training, in the bucket under way or the last one.", {},
                 edges_per_second_);
  page->AddGauge("weft_trainer_loss",
                 "Mean loss of an edge in the bucket under way or the last one.", {}, OrNan(loss_));
  const auto mrr = [&](absl::string_view when, const std::optional<double>& value) {
    page->AddGauge("weft_trainer_held_out_mrr",
                   "Mean reciprocal rank of the held-out edges of the last bucket.",
                   {{"when", when}}, OrNan(value));
  };
  mrr("before", mrr_before_);
  mrr("after", mrr_after_);
  page->AddGauge("weft_trainer_threads", "HOGWILD threads.", {}, threads_);
}

}  // namespace weft
