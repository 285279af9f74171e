#include "services/common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <array>
#include <atomic>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/logging.h"

namespace weft {
namespace {

constexpr absl::Duration kTellEvery = absl::Seconds(1);
constexpr std::array<absl::string_view, static_cast<size_t>(HandshakeFailure::kCount)> kReasons = {
    "no_certificate", "not_believed", "other"};

// Never destroyed: gRPC's threads log until the process ends.
struct State {
  Counters<HandshakeFailure> handshakes;
  std::atomic<int64_t> told_at_ns{0};
  std::atomic<int64_t> untold{0};
};

State& TheState() {
  static State* const state = new State;
  return *state;
}

// The words are gRPC's and OpenSSL's; a test holds them.
void CountHandshake(absl::string_view message, State* state) {
  if (!absl::StartsWith(message, "Handshake failed")) return;
  const HandshakeFailure why = absl::StrContains(message, "peer did not return a certificate")
                                   ? HandshakeFailure::kNoCertificate
                               : absl::StrContains(message, "certificate verify failed")
                                   ? HandshakeFailure::kNotBelieved
                                   : HandshakeFailure::kOther;
  state->handshakes[why].Increment();
}

void TakeLine(gpr_log_func_args* line) {
  State& state = TheState();
  const absl::string_view message = line->message;
  CountHandshake(message, &state);
  const int64_t now = absl::GetCurrentTimeNanos();
  int64_t told_at = state.told_at_ns;
  if (now < told_at + absl::ToInt64Nanoseconds(kTellEvery) ||
      !state.told_at_ns.compare_exchange_strong(told_at, now)) {
    ++state.untold;
    return;
  }
  const absl::string_view path = line->file;
  LogWarning("gRPC says",
             {{"cause", message},
              {"file", absl::StrCat(path.substr(path.rfind('/') + 1), ":", line->line)},
              {"untold_before", state.untold.exchange(0)}});
}

}  // namespace

void TakeGrpcLog() { gpr_set_log_function(TakeLine); }

void WriteHandshakeMetrics(MetricsPage* page) {
  const State& state = TheState();
  for (size_t i = 0; i < kReasons.size(); ++i) {
    page->AddCounter(
        "weft_tls_failed_handshakes_total", "TLS handshakes that failed, as a server or a client.",
        {{"reason", kReasons[i]}}, state.handshakes[static_cast<HandshakeFailure>(i)].value());
  }
}

}  // namespace weft
