// What is measured of a parameter server.
#include <iterator>

#include "services/param_server/row_block_store.h"

namespace weft {
namespace {

constexpr absl::string_view kRefusals[] = {"wrong_run", "old_life",   "session_over", "not_joined",
                                           "old_pass",  "bad_number", "bad_rows",     "not_finite"};
static_assert(std::size(kRefusals) == static_cast<size_t>(ParamRefusal::kCount));

}  // namespace

void RowBlockStore::RefusedMalformed() {
  MutexLock lock(&mu_);
  ++stats_.refused[static_cast<size_t>(ParamRefusal::kBadRows)];
}

void RowBlockStore::WriteMetrics(MetricsPage* page) const {
  const Stats now = stats();
  const std::optional<Share> installed = share();
  const auto gauge = [&](absl::string_view name, absl::string_view help, auto value) {
    page->AddGauge(name, help, {}, static_cast<double>(value));
  };
  const auto counter = [&](absl::string_view name, absl::string_view help, int64_t value) {
    page->AddCounter(name, help, {}, static_cast<double>(value));
  };
  gauge("weft_param_generation", "The generation whose parameters are here; 0: none.",
        installed.has_value() ? installed->generation : 0);
  gauge("weft_param_first_open_pass", "The passes before are cut.", first_open_pass());
  gauge("weft_param_rows", "Rows held.", now.rows);
  gauge("weft_param_row_bytes", "Bytes of the rows held, with optimizer sums.", now.row_bytes);
  gauge("weft_param_sessions", "Trainers that have joined and are not over.", now.sessions);
  counter("weft_param_joins_total", "Joins: full pulls begun.", now.joins);
  counter("weft_param_pushes_total", "Pushes applied.", now.pushes);
  counter("weft_param_repeated_pushes_total", "Pushes that were not applied again.", now.repeats);
  counter("weft_param_lost_pushes_total",
          "Pushes that were acknowledged to trainers and lost by this server.", now.lost_pushes);
  counter("weft_param_received_rows_total", "Rows of pushes applied.", now.rows_received);
  counter("weft_param_sent_rows_total", "Rows of joins and answers.", now.rows_sent);
  for (size_t i = 0; i < std::size(kRefusals); ++i) {
    page->AddCounter("weft_param_refused_calls_total", "Calls refused; nothing was changed.",
                     {{"reason", kRefusals[i]}}, static_cast<double>(now.refused[i]));
  }
}

}  // namespace weft
