// Orders and recovery; what trainers call is in row_block_push.cc.
#include "services/param_server/row_block_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/param_server/layout_codec.h"
#include "services/param_server/row_block_keys.h"

namespace weft {
namespace {

constexpr size_t kInstallBatchBytes = size_t{4} << 20;

std::string EncodeShare(const RowBlockStore::Share& share) {
  std::string bytes;
  PutString(share.run_id, &bytes);
  PutNumber(share.generation, &bytes);
  PutNumber(static_cast<uint64_t>(share.server), &bytes);
  PutNumber(static_cast<uint64_t>(share.num_servers), &bytes);
  PutLayout(share.layout, &bytes);
  return bytes;
}

absl::StatusOr<RowBlockStore::Share> DecodeShare(std::string_view bytes) {
  ByteReader reader(bytes);
  RowBlockStore::Share share;
  WEFT_ASSIGN_OR_RETURN(share.run_id, reader.String());
  WEFT_ASSIGN_OR_RETURN(share.generation, reader.Number());
  WEFT_ASSIGN_OR_RETURN(const uint64_t server, reader.Number());
  WEFT_ASSIGN_OR_RETURN(const uint64_t num_servers, reader.Number());
  WEFT_ASSIGN_OR_RETURN(share.layout, ReadLayout(&reader));
  if (num_servers < 1 || num_servers > INT32_MAX || server >= num_servers) {
    return absl::DataLossError("the stored share of the parameters is damaged");
  }
  share.server = static_cast<int>(server);
  share.num_servers = static_cast<int>(num_servers);
  return share;
}

RowTable MakeTable(const RowBlockStore::Share& share) {
  return RowTable(share.layout,
                  ParamPlacement(share.num_servers).RangesOf(share.layout, share.server));
}

absl::StatusOr<uint64_t> ReadSessionKey(std::string_view key) {
  return ByteReader(key.substr(1)).Number();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowBlockStore>> RowBlockStore::Open(const Options& options,
                                                                   PushLog* log) {
  std::unique_ptr<RowBlockStore> store(new RowBlockStore(options, log));
  WEFT_RETURN_IF_ERROR(Annotate(store->Recover(), "cannot read the stored parameters"));
  return store;
}

absl::Status RowBlockStore::Recover() {
  std::optional<Share> share;
  WEFT_RETURN_IF_ERROR(log_->Scan(kShareKey, [&](auto, std::string_view value) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(share, DecodeShare(value));
    return absl::OkStatus();
  }));
  if (!share) return absl::OkStatus();
  RowTable table = MakeTable(*share);
  int64_t rows = 0;
  WEFT_RETURN_IF_ERROR(
      log_->Scan(kRowPrefix, [&](std::string_view key, std::string_view value) -> absl::Status {
        uint32_t tensor = 0;
        uint32_t row = 0;
        const int64_t index = ParsePairKey(key, &tensor, &row) ? table.Find(tensor, row) : -1;
        if (index < 0 || value.size() != table.values(index).size_bytes()) {
          return absl::DataLossError("a stored row is damaged");
        }
        std::memcpy(table.values(index).data(), value.data(), value.size());
        ++rows;
        return absl::OkStatus();
      }));
  if (rows != table.num_rows()) {
    return absl::DataLossError(absl::StrCat(rows, " of ", table.num_rows(), " rows are there"));
  }
  auto read_number = [](int64_t* out) {
    return [out](std::string_view, std::string_view value) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const uint64_t number, ByteReader(value).Number());
      *out = static_cast<int64_t>(number);
      return absl::OkStatus();
    };
  };
  int64_t pass = 0;
  int64_t steps = 0;
  WEFT_RETURN_IF_ERROR(log_->Scan(kPassKey, read_number(&pass)));
  WEFT_RETURN_IF_ERROR(log_->Scan(kStepsKey, read_number(&steps)));
  absl::flat_hash_map<Incarnation, Session> sessions;
  WEFT_RETURN_IF_ERROR(
      log_->Scan(kSessionPrefix, [&](std::string_view key, std::string_view value) -> absl::Status {
        WEFT_ASSIGN_OR_RETURN(const uint64_t incarnation, ReadSessionKey(key));
        WEFT_ASSIGN_OR_RETURN(sessions[incarnation].last_number, ByteReader(value).Number());
        return absl::OkStatus();
      }));
  std::set<Incarnation> over;
  WEFT_RETURN_IF_ERROR(log_->Scan(kOverPrefix, [&](std::string_view key, auto) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const uint64_t incarnation, ReadSessionKey(key));
    over.insert(incarnation);
    return absl::OkStatus();
  }));
  std::set<int64_t> cuts;
  WEFT_RETURN_IF_ERROR(log_->Scan(kCutPrefix, [&](std::string_view key, auto) -> absl::Status {
    uint32_t before = 0;
    uint32_t piece = 0;
    // A cut beyond the pass was not finished: it will be ordered again.
    if (ParsePairKey(key, &before, &piece) && before <= pass) cuts.insert(before);
    return absl::OkStatus();
  }));
  MutexLock lock(&mu_);
  table_ = std::move(table);
  first_open_pass_ = durable_open_pass_ = pass;
  steps_ = steps;
  sessions_ = std::move(sessions);
  over_ = std::move(over);
  for (const int64_t before : cuts) cuts_[before] = nullptr;
  share_ = std::move(share);
  return fence_.Check({share_->run_id, 0, 0, share_->generation});
}

absl::Status RowBlockStore::Write(absl::Span<const PushLog::Change> changes) {
  WEFT_RETURN_IF_ERROR(failed_);
  return failed_ = log_->Write(changes);
}

absl::Status RowBlockStore::Sync() {
  absl::Status status = log_->Sync();
  MutexLock lock(&mu_);
  if (failed_.ok()) failed_ = std::move(status);
  return failed_;
}

absl::Status RowBlockStore::WriteRows(const RowTable& table) {
  std::vector<PushLog::Change> changes;
  size_t bytes = 0;
  for (int64_t i = 0; i < table.num_rows(); ++i) {
    const RowTable::Name name = table.NameOf(i);
    const std::span<const float> row = table.values(i);
    changes.push_back({RowKey(name.tensor, name.row),
                       {reinterpret_cast<const char*>(row.data()), row.size_bytes()}});
    bytes += row.size_bytes() + sizeof(PushLog::Change);
    if (bytes < kInstallBatchBytes && i + 1 < table.num_rows()) continue;
    WEFT_RETURN_IF_ERROR(log_->Write(changes));
    changes.clear();
    bytes = 0;
  }
  return absl::OkStatus();
}

absl::Status RowBlockStore::Install(const Share& share, int64_t first_open_pass, Fill fill) {
  WEFT_RETURN_IF_ERROR(fence_.Check({share.run_id, 0, 0, share.generation}));
  {
    MutexLock lock(&mu_);
    WEFT_RETURN_IF_ERROR(failed_);
    if (share_ && share_->generation == share.generation) return absl::OkStatus();
    share_.reset();
    table_ = RowTable();
    sessions_.clear();
    over_.clear();
    cuts_.clear();
  }
  // From here on nobody else touches the log.
  RowTable table = MakeTable(share);
  WEFT_ASSIGN_OR_RETURN(const int64_t steps, fill(&table));
  absl::Status written = [&]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(log_->Write({{std::string(kShareKey), {}, true}}));
    WEFT_RETURN_IF_ERROR(log_->Sync());
    for (const std::string_view prefix : {kCutPrefix, kRowPrefix, kSessionPrefix, kOverPrefix}) {
      WEFT_RETURN_IF_ERROR(log_->RemoveAll(prefix));
    }
    WEFT_RETURN_IF_ERROR(WriteRows(table));
    const std::string bytes = EncodeShare(share);
    const std::string pass = NumberValue(static_cast<uint64_t>(first_open_pass));
    const std::string count = NumberValue(static_cast<uint64_t>(steps));
    WEFT_RETURN_IF_ERROR(log_->Write({{std::string(kPassKey), pass},
                                      {std::string(kStepsKey), count},
                                      {std::string(kShareKey), bytes}}));
    return log_->Sync();
  }();
  MutexLock lock(&mu_);
  if (!written.ok()) return failed_ = std::move(written);
  table_ = std::move(table);
  first_open_pass_ = durable_open_pass_ = first_open_pass;
  steps_ = steps;
  share_ = share;
  return absl::OkStatus();
}

absl::Status RowBlockStore::CheckGeneration(Generation generation) const {
  WEFT_RETURN_IF_ERROR(failed_);
  if (!share_ || generation > share_->generation) {
    return absl::UnavailableError("the parameters of this generation are not installed");
  }
  if (generation < share_->generation) {
    return absl::AbortedError("an order of an earlier generation");
  }
  return absl::OkStatus();
}

std::shared_ptr<const ParamSnapshot> RowBlockStore::Copy(int64_t first_open_pass) const {
  auto copy = std::make_shared<ParamSnapshot>();
  copy->run_id = share_->run_id;
  copy->generation = share_->generation;
  copy->first_open_pass = first_open_pass;
  copy->steps = steps_;
  copy->layout = share_->layout;
  copy->ranges = table_.ranges();
  copy->values = FloatBlock(1, table_.num_floats());
  std::ranges::copy(table_.all(), copy->values.data());
  return copy;
}

absl::Status RowBlockStore::Cut(Generation generation, int64_t first_open_pass) {
  std::shared_ptr<const ParamSnapshot> cut;
  {
    MutexLock lock(&mu_);
    WEFT_RETURN_IF_ERROR(CheckGeneration(generation));
    if (cuts_.contains(first_open_pass) || first_open_pass < first_open_pass_) {
      return absl::OkStatus();
    }
    // Nobody can have trained in the new pass before this is reported, so what is copied again
    // after a crash is the same.
    first_open_pass_ = first_open_pass;
    cut = Copy(first_open_pass);
  }
  uint32_t piece = 0;
  absl::Status written = cut->Encode([&](std::string_view bytes) {
    const auto pass = static_cast<uint32_t>(first_open_pass);
    return log_->Write({{PairKey(kCutPrefix, pass, piece++), bytes}});
  });
  {
    MutexLock lock(&mu_);
    if (failed_.ok()) failed_ = std::move(written);
    const std::string pass = NumberValue(static_cast<uint64_t>(first_open_pass));
    WEFT_RETURN_IF_ERROR(Write({{std::string(kPassKey), pass}}));
  }
  WEFT_RETURN_IF_ERROR(Sync());
  MutexLock lock(&mu_);
  cuts_[first_open_pass] = std::move(cut);
  durable_open_pass_ = first_open_pass;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ParamSnapshot>> RowBlockStore::Snapshot(
    Generation generation, std::optional<int64_t> first_open_pass) {
  std::shared_ptr<const ParamSnapshot> cut;
  std::vector<int64_t> stored;
  {
    MutexLock lock(&mu_);
    WEFT_RETURN_IF_ERROR(CheckGeneration(generation));
    if (!first_open_pass) return Copy(first_open_pass_);
    const auto found = cuts_.find(*first_open_pass);
    if (found == cuts_.end()) {
      return absl::NotFoundError(absl::StrCat("no cut before pass ", *first_open_pass));
    }
    cut = found->second;
    for (auto it = cuts_.begin(); it != found; it = cuts_.erase(it)) stored.push_back(it->first);
  }
  for (const int64_t pass : stored) WEFT_RETURN_IF_ERROR(log_->RemoveAll(CutPrefix(pass)));
  if (cut != nullptr) return cut;
  std::string bytes;
  WEFT_RETURN_IF_ERROR(
      log_->Scan(CutPrefix(*first_open_pass), [&](std::string_view, std::string_view piece) {
        bytes.append(piece);
        return absl::OkStatus();
      }));
  WEFT_ASSIGN_OR_RETURN(ParamSnapshot read, ParamSnapshot::Decode(bytes));
  return std::make_shared<const ParamSnapshot>(std::move(read));
}

absl::Status RowBlockStore::EndSessions(absl::Span<const Incarnation> incarnations) {
  {
    MutexLock lock(&mu_);
    if (!share_) return failed_;  // there are none
    std::vector<PushLog::Change> changes;
    for (const uint64_t incarnation : incarnations) {
      if (!over_.insert(incarnation).second) continue;
      sessions_.erase(incarnation);
      changes.push_back({SessionKey(kSessionPrefix, incarnation), {}, true});
      changes.push_back({SessionKey(kOverPrefix, incarnation), {}});
    }
    if (changes.empty()) return failed_;
    WEFT_RETURN_IF_ERROR(Write(changes));
  }
  return Sync();
}

std::optional<RowBlockStore::Share> RowBlockStore::share() const {
  MutexLock lock(&mu_);
  return share_;
}

int64_t RowBlockStore::first_open_pass() const {
  MutexLock lock(&mu_);
  return durable_open_pass_;
}

std::vector<Incarnation> RowBlockStore::joined() const {
  MutexLock lock(&mu_);
  std::vector<Incarnation> joined;
  for (const auto& [incarnation, _] : sessions_) joined.push_back(incarnation);
  return joined;
}

absl::Status RowBlockStore::failed() const {
  MutexLock lock(&mu_);
  return failed_;
}

RowBlockStore::Stats RowBlockStore::stats() const {
  MutexLock lock(&mu_);
  Stats stats = stats_;
  stats.sessions = static_cast<int64_t>(sessions_.size());
  stats.rows = table_.num_rows();
  stats.row_bytes = table_.num_floats() * static_cast<int64_t>(sizeof(float));
  return stats;
}

}  // namespace weft
