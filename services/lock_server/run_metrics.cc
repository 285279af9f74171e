#include "services/lock_server/run_metrics.h"

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr absl::string_view kPhases[] = {"preparing", "running", "cutting", "rewinding",
                                         "paused",    "failed",  "done"};
constexpr absl::string_view kRefusals[] = {
    "wrong_run", "old_generation", "session_ended", "grant_ended",   "stale_base",
    "malformed", "not_stored",     "wrong_edges",   "other_version", "run_failed"};
static_assert(std::size(kPhases) == static_cast<size_t>(RunPhase::kDone));
static_assert(std::size(kRefusals) == static_cast<size_t>(CallRefusal::kCount));

// Adds one sample without labels.
class Gauges {
 public:
  explicit Gauges(MetricsPage* page) : page_(page) {}
  template <typename T>
  void operator()(absl::string_view name, absl::string_view help, T value) const {
    page_->AddGauge(name, help, {}, static_cast<double>(value));
  }

 private:
  MetricsPage* const page_;
};

template <typename Counts, size_t size>
void AddByReason(MetricsPage* page, absl::string_view name, absl::string_view help,
                 const absl::string_view (&reasons)[size], const Counts& counts) {
  for (size_t i = 0; i < size; ++i) {
    page->AddCounter(name, help, {{"reason", reasons[i]}}, static_cast<double>(counts[i]));
  }
}

void WritePosition(const RunMetrics& run, MetricsPage* page) {
  for (size_t i = 0; i < std::size(kPhases); ++i) {
    page->AddGauge("weft_lock_run_phase", "1 for the phase that the run is in.",
                   {{"phase", kPhases[i]}}, static_cast<size_t>(run.phase) == i + 1 ? 1 : 0);
  }
  const Gauges gauge(page);
  gauge("weft_lock_term", "Which life of the lock server this is.", run.term);
  gauge("weft_lock_generation", "1, and 1 more for each time the run went back.", run.generation);
  page->AddCounter("weft_lock_rewinds_total", "How often the run went back.", {},
                   static_cast<double>(run.counters.rewinds));
  gauge("weft_lock_epoch", "The epoch under way; as many are over.", run.position.epoch);
  gauge("weft_lock_configured_epochs", "Epochs that the run is to have.", run.num_epochs);
  gauge("weft_lock_pass", "The pass under way; as many are over.", run.position.pass);
}

void WriteBuckets(const RunMetrics& run, MetricsPage* page) {
  const auto state = [&](absl::string_view name, int64_t buckets) {
    page->AddGauge("weft_lock_buckets", "Buckets of the pass under way, by state.",
                   {{"state", name}}, static_cast<double>(buckets));
  };
  state("free", run.free_buckets);
  state("granted", run.granted_buckets);
  state("done", run.done_buckets);
  const auto num_rhs = static_cast<size_t>(run.num_rhs);
  for (size_t i = 0; i < run.buckets.size(); ++i) {
    page->AddGauge("weft_lock_bucket_state", "A bucket: 1 free, 2 granted, 3 done.",
                   {{"lhs", absl::AlphaNum(i / num_rhs).Piece()},
                    {"rhs", absl::AlphaNum(i % num_rhs).Piece()}},
                   static_cast<double>(run.buckets[i]));
  }
}

void WriteEdges(const RunMetrics& run, MetricsPage* page) {
  const Gauges gauge(page);
  gauge("weft_lock_pass_edges", "Edges of the pass under way.", run.pass_edges);
  gauge("weft_lock_pass_committed_edges", "Edges of its buckets that are done.",
        run.pass_committed_edges);
  gauge("weft_lock_run_edges", "Edges of all epochs together.", run.run_edges);
  gauge("weft_lock_run_committed_edges", "Those of them whose buckets are done.",
        run.run_committed_edges);
  const auto committed = [&](absl::string_view kind, int64_t edges) {
    page->AddCounter("weft_lock_committed_edges_total", "Edges of buckets handed in.",
                     {{"kind", kind}}, static_cast<double>(edges));
  };
  committed("trained", run.counters.trained_edges);
  committed("held_out", run.counters.held_out_edges);
  gauge("weft_lock_edges_per_second", "Edges committed a second, lately.",
        OrNan(run.edges_per_second));
  gauge("weft_lock_eta_seconds", "Time until all epochs are over, at that speed.",
        OrNan(run.eta_seconds));
  gauge("weft_lock_loss", "Mean loss of an edge over the buckets done in this pass.",
        OrNan(run.totals.loss()));
  const auto mrr = [&](absl::string_view when, const std::optional<double>& value) {
    page->AddGauge("weft_lock_held_out_mrr", "Mean reciprocal rank of held-out edges.",
                   {{"when", when}}, OrNan(value));
  };
  mrr("before", run.totals.mrr_before());
  mrr("after", run.totals.mrr_after());
}

void WriteGrants(const RunMetrics& run, MetricsPage* page) {
  const RunCounters& counters = run.counters;
  const Gauges gauge(page);
  gauge("weft_lock_sessions", "Live sessions: trainers.", run.sessions);
  AddByReason(page, "weft_lock_sessions_ended_total", "Sessions that ended, by reason.",
              kSessionEnds, counters.sessions_ended);
  gauge("weft_lock_grants", "Live grants.", run.grants);
  gauge("weft_lock_oldest_grant_age_seconds", "Age of the oldest live grant; 0 without grants.",
        run.oldest_grant_seconds);
  page->AddCounter("weft_lock_grants_total", "Grants made.", {},
                   static_cast<double>(counters.grants));
  AddByReason(page, "weft_lock_grants_ended_total", "Grants that ended, by reason.", kGrantEnds,
              counters.grants_ended);
  page->AddCounter("weft_lock_requeued_buckets_total",
                   "Buckets that went back to the pool without a release.", {},
                   static_cast<double>(counters.requeued_buckets));
  const auto repeated = [&](absl::string_view call, int64_t count) {
    page->AddCounter("weft_lock_repeated_calls_total", "Calls that were answered again as before.",
                     {{"call", call}}, static_cast<double>(count));
  };
  repeated("acquire", counters.repeated_acquires);
  repeated("release", counters.repeated_releases);
  AddByReason(page, "weft_lock_refused_calls_total", "Calls refused; nothing was changed.",
              kRefusals, counters.refused);
  page->AddHistogram("weft_lock_grant_duration_seconds", "From a grant to its release.", {},
                     counters.grant_seconds);
}

void WriteServers(const RunMetrics& run, MetricsPage* page) {
  const auto servers = [&](absl::string_view role, const RunMetrics::Servers& count) {
    const auto state = [&](absl::string_view name, int64_t number) {
      page->AddGauge("weft_lock_servers", "Registered servers, by role and state.",
                     {{"role", role}, {"state", name}}, static_cast<double>(number));
    };
    state("live", count.live);
    state("silent", count.silent);
    state("retired", count.retired);
  };
  servers("partition", run.partition_servers);
  servers("param", run.param_servers);
  page->AddGauge("weft_lock_kept_bytes", "Bytes that partition servers must keep, without edges.",
                 {}, static_cast<double>(run.kept_bytes));
}

void WriteCheckpoints(const RunMetrics& run, MetricsPage* page) {
  const Gauges gauge(page);
  gauge("weft_lock_checkpoint_version", "Newest committed version; 0: none yet.",
        run.checkpoint_version);
  gauge("weft_lock_checkpoint_age_seconds",
        "Since the newest manifest was committed, or the process began.",
        run.checkpoint_age_seconds);
  gauge("weft_lock_checkpoints_pending", "Manifests of which something is not durable yet.",
        run.pending_checkpoints);
  page->AddHistogram("weft_lock_checkpoint_duration_seconds",
                     "From the cut of a manifest until it is committed.", {},
                     run.counters.checkpoint_seconds);
}

}  // namespace

void WriteRunMetrics(const RunMetrics& run, MetricsPage* page) {
  WritePosition(run, page);
  WriteBuckets(run, page);
  WriteEdges(run, page);
  WriteGrants(run, page);
  WriteServers(run, page);
  WriteCheckpoints(run, page);
}

}  // namespace weft
