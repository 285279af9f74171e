// ParameterSync is a trainer's side of the exchange: what it sends to each parameter server, and
// how the answers come into the live state while HOGWILD threads write it.
//
// Beside the live rows L it keeps S, what it knows of the server's rows V with its own pushes in
// them; so L - S is what has not been sent. A push reads L once (L0), and sends d = L0 - S. The
// answer makes S = V', and adds the difference to L: what threads wrote during the round trip
// survives. In floats: after a push S + d is computed as the server does, to the bit, so rows that
// the server need not send back are known exactly; a row that nobody wrote meanwhile becomes V'
// itself, so L = S = V once everything is exchanged.
//
// One push is in flight per server; until its answer, NextPush gives the same one again.
// Changed rows are found by their marks (changed_rows.h), or, where changes are not tracked, by
// comparing all.
//
// Thread-safety: Collect: any thread. The others: one thread a server at a time. Join: while nobody
// writes the live state.
// Memory: S is as large as what is shared.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/mutex.h"
#include "services/param_server/param_client.h"
#include "services/param_server/param_exchange.h"
#include "services/param_server/placement.h"
#include "services/param_server/shared_layout.h"

namespace weft {

class ParameterSync {
 public:
  struct Options {
    int num_servers = 1;
    size_t max_message_bytes = kMaxParamMessageBytes;
  };

  // `live` must outlive this object; its blocks stay where they are.
  ParameterSync(SharedState* live, const Options& options);

  const SharedLayout& layout() const { return layout_; }
  int num_servers() const { return placement_.num_servers(); }

  // --- Joining: L = S = V. What has not been sent is dropped.

  // The first page to ask `server` for. A caller of another incarnation numbers its pushes anew.
  JoinRequest BeginJoin(int server, const ParamCaller& caller);
  // Takes a page; the next one to ask for, or none after the last.
  // Errors: Internal for an answer that makes no sense.
  absl::StatusOr<std::optional<JoinRequest>> AcceptPage(int server, const JoinPage& page);

  // --- Exchange.

  // Takes the marks of all rows that have changed and queues the rows for their servers.
  void Collect() ABSL_LOCKS_EXCLUDED(mu_);
  // Rows that are queued for the server.
  int64_t num_queued(int server) const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the server has more for this trainer than fitted into its last answer.
  bool more(int server) const { return servers_[static_cast<size_t>(server)].more; }
  // Whether something was pushed that the server may not have made durable.
  bool unsynced(int server) const { return servers_[static_cast<size_t>(server)].unsynced; }

  // The push in flight; if there is none, a new one with as many queued rows as fit (it may have
  // none: then it is a pull). `sync` is of the last rows only: a push after which rows are still
  // queued need not be durable.
  const PushRequest& NextPush(int server, int64_t pass, bool sync);
  // The push in flight was refused because its pass is over: it is one of this pass.
  void MoveToPass(int server, int64_t pass) {
    servers_[static_cast<size_t>(server)].in_flight->pass = pass;
  }
  // The answer to the push in flight.
  // Errors: Internal for an answer that makes no sense.
  absl::Status Merge(int server, const PushAnswer& answer);

 private:
  struct Row {
    uint32_t tensor = 0;
    int64_t row = 0;
  };
  struct Server {
    ParamCaller caller;
    uint64_t next_number = 1;
    ParamCursor cursor;
    std::optional<PushRequest> in_flight;
    std::vector<float> sent;  // L0 of the rows in flight
    int64_t known_steps = 0;
    bool more = false;
    bool unsynced = false;
  };
  struct Tensor {
    float* live = nullptr;
    FloatBlock known;             // S
    std::vector<uint8_t> queued;  // by row; guarded by mu_
  };

  // Calls `use` with every row of a batch and its floats. Errors: Internal (not rows of ours).
  template <typename Use>
  absl::Status ForEachRow(const RowBatch& rows, Use use) const;
  void Queue(uint32_t tensor, int64_t row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void QueueRowOfBlock(uint32_t tensor, int64_t cols, int64_t block_row)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectByComparing(uint32_t tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Appends what the row has gained to the push in flight; nothing, if it has gained nothing.
  void AddDifference(const Row& row, Server* server);
  void KnowOwnPush(Server* server);

  SharedState* const live_;
  const SharedLayout layout_;
  const ParamPlacement placement_;
  const Options options_;
  const std::vector<LiveGroup> groups_;
  std::vector<Tensor> tensors_;  // as the layout's
  std::vector<Server> servers_;

  mutable Mutex mu_;
  std::vector<std::deque<Row>> queues_ ABSL_GUARDED_BY(mu_);  // by server
};

}  // namespace weft
