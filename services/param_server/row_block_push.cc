// What trainers call of RowBlockStore.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/param_server/row_block_keys.h"
#include "services/param_server/row_block_store.h"

namespace weft {

absl::Status RowBlockStore::Refuse(ParamRefusal why, absl::Status status) {
  ++stats_.refused[static_cast<size_t>(why)];
  return status;
}

absl::Status RowBlockStore::CheckCaller(const ParamCaller& caller) {
  WEFT_RETURN_IF_ERROR(failed_);
  if (!share_) return absl::UnavailableError("this server holds no parameters yet");
  if (absl::Status heard = fence_.Check(caller.context); !heard.ok()) {
    return Refuse(
        absl::IsFailedPrecondition(heard) ? ParamRefusal::kWrongRun : ParamRefusal::kOldLife,
        heard);
  }
  if (!caller.context.generation || caller.incarnation == 0) {
    return Refuse(ParamRefusal::kNotJoined,
                  absl::InvalidArgumentError("a call without generation or incarnation"));
  }
  if (*caller.context.generation != share_->generation) {
    return absl::UnavailableError("the parameters of this generation are not installed yet");
  }
  if (over_.contains(caller.incarnation)) {
    return Refuse(ParamRefusal::kSessionOver, absl::AbortedError("the trainer's session is over"));
  }
  return absl::OkStatus();
}

absl::StatusOr<JoinPage> RowBlockStore::Join(const JoinRequest& request) {
  absl::StatusOr<JoinPage> page;
  {
    MutexLock lock(&mu_);
    page = JoinLocked(request);
  }
  if (page.ok() && request.page == 0) WEFT_RETURN_IF_ERROR(Sync());
  return page;
}

absl::StatusOr<JoinPage> RowBlockStore::JoinLocked(const JoinRequest& request) {
  WEFT_RETURN_IF_ERROR(CheckCaller(request.caller));
  if (request.layout_hash != share_->layout.hash()) {
    return Refuse(ParamRefusal::kBadRows,
                  absl::FailedPreconditionError("the trainer's shared parameters have other names "
                                                "or shapes than this run's"));
  }
  JoinPage page;
  page.cursor = {options_.incarnation, table_.counter()};
  int64_t at = 0;
  if (request.page == 0) {
    if (request.first_number == 0) {
      return Refuse(ParamRefusal::kBadNumber, absl::InvalidArgumentError("numbers begin at 1"));
    }
    const auto known = sessions_.find(request.caller.incarnation);
    const uint64_t last = std::max(known == sessions_.end() ? 0 : known->second.last_number,
                                   request.first_number - 1);
    const std::string value = NumberValue(last);
    WEFT_RETURN_IF_ERROR(Write({{SessionKey(kSessionPrefix, request.caller.incarnation), value}}));
    sessions_[request.caller.incarnation].last_number = last;
    ++stats_.joins;
  } else {
    if (request.cursor.incarnation != options_.incarnation ||
        !sessions_.contains(request.caller.incarnation)) {
      return Refuse(ParamRefusal::kNotJoined,
                    absl::FailedPreconditionError("the server has restarted: join again"));
    }
    if (request.page > static_cast<uint64_t>(table_.num_rows())) {
      return Refuse(ParamRefusal::kBadRows, absl::InvalidArgumentError("no such page"));
    }
    at = static_cast<int64_t>(request.page);
    // What was sent on earlier pages may have changed since the first.
    page.cursor = request.cursor;
  }
  page.first_number = sessions_[request.caller.incarnation].last_number + 1;
  page.steps = steps_;
  for (; at < table_.num_rows(); ++at) {
    const std::span<const float> row = table_.values(at);
    if (page.rows.Bytes() + RowBatch::RowBytes(static_cast<int64_t>(row.size())) >
            options_.max_message_bytes &&
        !page.rows.empty()) {
      page.next_page = static_cast<uint64_t>(at);
      break;
    }
    const RowTable::Name name = table_.NameOf(at);
    page.rows.AddRow(name.tensor, name.row);
    page.rows.values.insert(page.rows.values.end(), row.begin(), row.end());
    ++stats_.rows_sent;
  }
  return page;
}

absl::StatusOr<PushAnswer> RowBlockStore::Push(const PushRequest& request) {
  absl::StatusOr<PushAnswer> answer;
  {
    MutexLock lock(&mu_);
    answer = PushLocked(request);
  }
  // A repeat too: the first time may not have come so far.
  if (answer.ok() && request.sync) WEFT_RETURN_IF_ERROR(Sync());
  return answer;
}

absl::Status RowBlockStore::Sum(const RowBatch& rows, std::vector<int64_t>* indices,
                                std::vector<float>* values) {
  size_t at = 0;
  for (const RowRun& run : rows.runs) {
    for (int64_t row = run.first; row < int64_t{run.first} + run.count; ++row) {
      const int64_t index = table_.Find(run.tensor, row);
      if (index < 0 || table_.values(index).size() > rows.values.size() - at) {
        return Refuse(ParamRefusal::kBadRows, absl::InvalidArgumentError(absl::StrCat(
                                                  "row ", row, " of tensor ", run.tensor,
                                                  " is not held here, or "
                                                  "the push is cut short")));
      }
      for (const float old : table_.values(index)) {
        const float sum = old + rows.values[at++];
        if (!std::isfinite(sum)) {
          return Refuse(ParamRefusal::kNotFinite,
                        absl::InvalidArgumentError(absl::StrCat(
                            "row ", row, " of ", share_->layout.tensor(run.tensor).name,
                            " would not be finite")));
        }
        values->push_back(sum);
      }
      indices->push_back(index);
    }
  }
  if (at == rows.values.size()) return absl::OkStatus();
  return Refuse(ParamRefusal::kBadRows, absl::InvalidArgumentError("a push with floats of no row"));
}

absl::Status RowBlockStore::Apply(const PushRequest& request, Session* session,
                                  std::vector<bool>* only_theirs) {
  std::vector<int64_t> indices;
  std::vector<float> values;
  values.reserve(request.rows.values.size());
  WEFT_RETURN_IF_ERROR(Sum(request.rows, &indices, &values));

  std::vector<PushLog::Change> changes;
  changes.reserve(indices.size() + 2);
  size_t at = 0;
  for (const int64_t index : indices) {
    const RowTable::Name name = table_.NameOf(index);
    const size_t floats = table_.values(index).size();
    changes.push_back({RowKey(name.tensor, name.row),
                       {reinterpret_cast<const char*>(&values[at]), floats * sizeof(float)}});
    at += floats;
  }
  const std::string number = NumberValue(request.number);
  const std::string steps = NumberValue(static_cast<uint64_t>(steps_ + request.steps));
  changes.push_back({SessionKey(kSessionPrefix, request.caller.incarnation), number});
  if (request.steps != 0) changes.push_back({std::string(kStepsKey), steps});
  WEFT_RETURN_IF_ERROR(Write(changes));

  at = 0;
  const bool known_here = request.cursor.incarnation == options_.incarnation;
  for (const int64_t index : indices) {
    only_theirs->push_back(known_here && table_.version(index) <= request.cursor.counter);
    const std::span<float> row = table_.values(index);
    std::copy_n(values.begin() + static_cast<ptrdiff_t>(at), row.size(), row.begin());
    at += row.size();
    table_.Touch(index);
  }
  steps_ += request.steps;
  session->last_number = request.number;
  ++stats_.pushes;
  stats_.rows_received += static_cast<int64_t>(indices.size());
  return absl::OkStatus();
}

absl::StatusOr<PushAnswer> RowBlockStore::PushLocked(const PushRequest& request) {
  WEFT_RETURN_IF_ERROR(CheckCaller(request.caller));
  const auto session = sessions_.find(request.caller.incarnation);
  if (session == sessions_.end()) {
    return Refuse(ParamRefusal::kNotJoined,
                  absl::FailedPreconditionError("the trainer has not joined: join again"));
  }
  const bool known_here = request.cursor.incarnation == options_.incarnation;
  if (request.number == 0 || (known_here && request.cursor.counter > table_.counter())) {
    return Refuse(ParamRefusal::kBadNumber,
                  absl::InvalidArgumentError("a push with a number or cursor that never was"));
  }
  PushAnswer answer;
  const uint64_t last = session->second.last_number;
  const uint64_t first_own = table_.counter() + 1;
  std::vector<bool> only_theirs;
  if (request.number > last) {
    // After a restart the tail of what was acknowledged but not synced may be gone.
    const uint64_t lost = request.number - 1 - last;
    if (lost > 0 && known_here) {
      return Refuse(ParamRefusal::kBadNumber,
                    absl::InvalidArgumentError(
                        absl::StrCat("push ", request.number, " does not follow ", last)));
    }
    if (request.pass < first_open_pass_ && (!request.rows.empty() || request.steps != 0)) {
      return Refuse(ParamRefusal::kOldPass,
                    absl::FailedPreconditionError(absl::StrCat("pass ", request.pass, " is over, ",
                                                               first_open_pass_, " is open")));
    }
    WEFT_RETURN_IF_ERROR(Apply(request, &session->second, &only_theirs));
    answer.applied = true;
    answer.lost_pushes = lost;
    stats_.lost_pushes += static_cast<int64_t>(lost);
  } else {
    ++stats_.repeats;
  }
  Answer(request.cursor, first_own, only_theirs, &answer);
  return answer;
}

void RowBlockStore::Answer(const ParamCursor& cursor, uint64_t first_own,
                           const std::vector<bool>& only_theirs, PushAnswer* answer) {
  const uint64_t after = cursor.incarnation == options_.incarnation ? cursor.counter : 0;
  answer->steps = steps_;
  answer->cursor = {options_.incarnation, after};
  for (RowTable::Newer newer(table_, after); !newer.done(); newer.Next()) {
    const bool known = newer.version() >= first_own &&
                       newer.version() - first_own < only_theirs.size() &&
                       only_theirs[static_cast<size_t>(newer.version() - first_own)];
    if (!known) {
      const std::span<const float> row = table_.values(newer.index());
      if (answer->rows.Bytes() + RowBatch::RowBytes(static_cast<int64_t>(row.size())) >
              options_.max_message_bytes &&
          !answer->rows.empty()) {
        answer->more = true;
        return;
      }
      const RowTable::Name name = table_.NameOf(newer.index());
      answer->rows.AddRow(name.tensor, name.row);
      answer->rows.values.insert(answer->rows.values.end(), row.begin(), row.end());
      ++stats_.rows_sent;
    }
    answer->cursor.counter = newer.version();
  }
  answer->cursor.counter = table_.counter();
}

}  // namespace weft
