#include "services/param_server/parameter_sync.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/changed_rows.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/param_server/live_copy.h"

namespace weft {
namespace {

// Server 0 counts the optimizer's steps.
constexpr int kStepsServer = 0;

absl::Status MakesNoSense(const char* what) {
  return absl::InternalError(absl::StrCat("a parameter server's answer has ", what));
}

}  // namespace

ParameterSync::ParameterSync(SharedState* live, const Options& options)
    : live_(live),
      layout_(SharedLayout::Of(*live)),
      placement_(options.num_servers),
      options_(options),
      groups_(LiveGroups(live)),
      servers_(static_cast<size_t>(options.num_servers)),
      queues_(static_cast<size_t>(options.num_servers)) {
  for (uint32_t t = 0; t < layout_.num_tensors(); ++t) {
    const SharedTensor& tensor = layout_.tensor(t);
    tensors_.push_back({groups_[t / 2].values[t % 2], FloatBlock(1, tensor.size),
                        std::vector<uint8_t>(static_cast<size_t>(tensor.rows))});
  }
}

template <typename Use>
absl::Status ParameterSync::ForEachRow(const RowBatch& rows, Use use) const {
  size_t at = 0;
  for (const RowRun& run : rows.runs) {
    if (run.tensor >= layout_.num_tensors() ||
        int64_t{run.first} + run.count > layout_.tensor(run.tensor).rows) {
      return MakesNoSense("rows that are not shared");
    }
    for (int64_t row = run.first; row < int64_t{run.first} + run.count; ++row) {
      const auto floats = static_cast<size_t>(layout_.tensor(run.tensor).RowFloats(row));
      if (floats > rows.values.size() - at) return MakesNoSense("too few floats");
      use(Row{run.tensor, row}, std::span<const float>(&rows.values[at], floats));
      at += floats;
    }
  }
  return at == rows.values.size() ? absl::OkStatus() : MakesNoSense("too many floats");
}

JoinRequest ParameterSync::BeginJoin(int server, const ParamCaller& caller) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (caller.incarnation != s.caller.incarnation) s.next_number = 1;
  s.caller = caller;
  s.in_flight.reset();
  s.sent.clear();
  s.cursor = {};
  s.more = s.unsynced = false;
  MutexLock lock(&mu_);
  for (const Row& row : queues_[static_cast<size_t>(server)]) {
    tensors_[row.tensor].queued[static_cast<size_t>(row.row)] = 0;
  }
  queues_[static_cast<size_t>(server)].clear();
  return {caller, layout_.hash(), s.next_number, 0, {}};
}

absl::StatusOr<std::optional<JoinRequest>> ParameterSync::AcceptPage(int server,
                                                                     const JoinPage& page) {
  Server& s = servers_[static_cast<size_t>(server)];
  WEFT_RETURN_IF_ERROR(ForEachRow(page.rows, [&](Row row, std::span<const float> values) {
    const int64_t at = layout_.tensor(row.tensor).RowOffset(row.row);
    std::ranges::copy(values, tensors_[row.tensor].known.data() + at);
    std::ranges::copy(values, tensors_[row.tensor].live + at);
  }));
  if (server == kStepsServer) {
    s.known_steps = page.steps;
    live_->parameters.steps = page.steps;
  }
  s.cursor = page.cursor;
  s.next_number = std::max(s.next_number, page.first_number);
  if (page.next_page != 0) {
    return JoinRequest{s.caller, layout_.hash(), s.next_number, page.next_page, page.cursor};
  }
  return std::nullopt;
}

void ParameterSync::Queue(uint32_t tensor, int64_t row) {
  uint8_t& queued = tensors_[tensor].queued[static_cast<size_t>(row)];
  if (queued != 0) return;  // will be read when it is sent, with this change in it
  queued = 1;
  const int server = placement_.ServerOf(layout_.tensor(tensor), row);
  queues_[static_cast<size_t>(server)].push_back({tensor, row});
}

void ParameterSync::QueueRowOfBlock(uint32_t tensor, int64_t cols, int64_t block_row) {
  const SharedTensor& t = layout_.tensor(tensor);
  // More than one where wide rows are cut.
  const int64_t first = block_row * cols / t.cols;
  const int64_t last = ((block_row + 1) * cols - 1) / t.cols;
  for (int64_t row = first; row <= last; ++row) Queue(tensor, row);
}

void ParameterSync::CollectByComparing(uint32_t tensor) {
  const SharedTensor& t = layout_.tensor(tensor);
  std::vector<float> now(static_cast<size_t>(t.cols));
  for (int64_t row = 0; row < t.rows; ++row) {
    const int64_t at = t.RowOffset(row);
    const auto n = static_cast<size_t>(t.RowFloats(row));
    CopyLiveFloats(tensors_[tensor].live + at, n, now.data());
    if (!std::equal(now.begin(), now.begin() + static_cast<ptrdiff_t>(n),
                    tensors_[tensor].known.data() + at)) {
      Queue(tensor, row);
    }
  }
}

void ParameterSync::Collect() {
  std::vector<int64_t> taken;
  MutexLock lock(&mu_);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const LiveGroup& group = groups_[g];
    const auto values = static_cast<uint32_t>(2 * g);
    if (group.changed->empty()) {
      CollectByComparing(values);
      CollectByComparing(values + 1);
      continue;
    }
    taken.clear();
    TakeChanged(group.changed, [&taken](int64_t row) { taken.push_back(row); });
    for (const int64_t row : taken) {
      QueueRowOfBlock(values, group.cols[0], row);
      QueueRowOfBlock(values + 1, group.cols[1], row);
    }
  }
}

int64_t ParameterSync::num_queued(int server) const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(queues_[static_cast<size_t>(server)].size());
}

void ParameterSync::AddDifference(const Row& row, Server* server) {
  const SharedTensor& tensor = layout_.tensor(row.tensor);
  const int64_t at = tensor.RowOffset(row.row);
  const auto n = static_cast<size_t>(tensor.RowFloats(row.row));
  const float* known = tensors_[row.tensor].known.data() + at;
  RowBatch& rows = server->in_flight->rows;
  const size_t first = server->sent.size();
  server->sent.resize(first + n);
  rows.values.resize(first + n);
  CopyLiveFloats(tensors_[row.tensor].live + at, n, &server->sent[first]);
  bool gained = false;
  for (size_t i = 0; i < n; ++i) {
    rows.values[first + i] = server->sent[first + i] - known[i];
    // Not "!= 0": what is not a number is sent, too, and refused.
    gained |= !(rows.values[first + i] == 0);
  }
  if (gained) {
    rows.AddRow(row.tensor, row.row);
  } else {
    server->sent.resize(first);
    rows.values.resize(first);
  }
}

const PushRequest& ParameterSync::NextPush(int server, int64_t pass, bool sync) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (s.in_flight) return *s.in_flight;
  PushRequest& push = s.in_flight.emplace();
  push.caller = s.caller;
  push.number = s.next_number++;
  push.pass = pass;
  push.cursor = s.cursor;
  s.sent.clear();
  while (true) {
    Row row;
    {
      MutexLock lock(&mu_);
      std::deque<Row>& queue = queues_[static_cast<size_t>(server)];
      if (queue.empty()) {
        push.sync = sync;
        break;
      }
      row = queue.front();
      if (push.rows.Bytes() + RowBatch::RowBytes(layout_.tensor(row.tensor).RowFloats(row.row)) >
              options_.max_message_bytes &&
          !push.rows.empty()) {
        break;
      }
      queue.pop_front();
      tensors_[row.tensor].queued[static_cast<size_t>(row.row)] = 0;
    }
    // After its place in the queue is free: a change that this misses has a mark, and is queued.
    AddDifference(row, &s);
  }
  if (server == kStepsServer) {
    push.steps =
        std::atomic_ref(live_->parameters.steps).load(std::memory_order_relaxed) - s.known_steps;
  }
  return push;
}

// S + d, as the server has added it.
void ParameterSync::KnowOwnPush(Server* server) {
  std::vector<float> target;
  size_t first = 0;
  const absl::Status status =
      ForEachRow(server->in_flight->rows, [&](Row row, std::span<const float> difference) {
        const int64_t at = layout_.tensor(row.tensor).RowOffset(row.row);
        float* known = tensors_[row.tensor].known.data() + at;
        target.resize(difference.size());
        for (size_t i = 0; i < target.size(); ++i) target[i] = known[i] + difference[i];
        MoveLiveFloats(&server->sent[first], target.data(), target.size(),
                       tensors_[row.tensor].live + at);
        std::ranges::copy(target, known);
        first += target.size();
      });
  WEFT_CHECK(status.ok());
}

absl::Status ParameterSync::Merge(int server, const PushAnswer& answer) {
  Server& s = servers_[static_cast<size_t>(server)];
  WEFT_CHECK(s.in_flight.has_value());
  // Tested first: an answer is taken whole or not at all.
  bool finite = true;
  WEFT_RETURN_IF_ERROR(ForEachRow(answer.rows, [&](Row, std::span<const float> values) {
    for (const float v : values) finite &= std::isfinite(v);
  }));
  if (!finite) return MakesNoSense("values that are not finite");

  KnowOwnPush(&s);
  WEFT_RETURN_IF_ERROR(ForEachRow(answer.rows, [&](Row row, std::span<const float> values) {
    const int64_t at = layout_.tensor(row.tensor).RowOffset(row.row);
    float* known = tensors_[row.tensor].known.data() + at;
    MoveLiveFloats(known, values.data(), values.size(), tensors_[row.tensor].live + at);
    std::ranges::copy(values, known);
  }));
  if (server == kStepsServer) {
    std::atomic_ref(live_->parameters.steps)
        .fetch_add(answer.steps - (s.known_steps + s.in_flight->steps), std::memory_order_relaxed);
    s.known_steps = answer.steps;
  }
  if (s.in_flight->sync) {
    s.unsynced = false;
  } else if (!s.in_flight->rows.empty() || s.in_flight->steps != 0) {
    s.unsynced = true;
  }
  s.cursor = answer.cursor;
  s.more = answer.more;
  s.in_flight.reset();
  return absl::OkStatus();
}

}  // namespace weft
