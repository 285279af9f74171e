#include "services/lock_server/file_run_store.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_codec.h"

namespace weft {
namespace {

constexpr absl::string_view kMagic = "WRL1";
constexpr size_t kHeaderBytes = 4 + 4 + 4 + 8;
constexpr size_t kMaxPayload = size_t{2} << 30;  // of a protobuf message

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T Take(absl::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

uint32_t HeaderSum(uint32_t length, uint64_t payload_sum) {
  std::string header(kMagic);
  Put(length, &header);
  Put(payload_sum, &header);
  return static_cast<uint32_t>(XXH3_64bits(header.data(), header.size()));
}

std::string Frame(const std::string& payload) {
  const auto length = static_cast<uint32_t>(payload.size());
  const uint64_t payload_sum = XXH3_64bits(payload.data(), payload.size());
  std::string framed(kMagic);
  Put(length, &framed);
  Put(HeaderSum(length, payload_sum), &framed);
  Put(payload_sum, &framed);
  return framed + payload;
}

// Takes a whole and undamaged record off the front of `log`.
bool TakeRecord(absl::string_view* log, absl::string_view* payload) {
  if (log->size() < kHeaderBytes || log->substr(0, kMagic.size()) != kMagic) return false;
  const auto length = Take<uint32_t>(*log, 4);
  const auto payload_sum = Take<uint64_t>(*log, 12);
  if (Take<uint32_t>(*log, 8) != HeaderSum(length, payload_sum)) return false;
  if (length > kMaxPayload || log->size() - kHeaderBytes < length) return false;
  *payload = log->substr(kHeaderBytes, length);
  if (XXH3_64bits(payload->data(), payload->size()) != payload_sum) return false;
  log->remove_prefix(kHeaderBytes + length);
  return true;
}

// Whether some whole record begins after the front of `log`.
bool HasLaterRecord(absl::string_view log) {
  for (size_t at = log.find(kMagic, 1); at != absl::string_view::npos;
       at = log.find(kMagic, at + 1)) {
    absl::string_view rest = log.substr(at);
    absl::string_view payload;
    if (TakeRecord(&rest, &payload)) return true;
  }
  return false;
}

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "cannot append");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileRunStore>> FileRunStore::Open(std::string path) {
  std::unique_ptr<FileRunStore> store(new FileRunStore(std::move(path)));
  const absl::Status status = store->OpenForAppend();
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  return store;
}

FileRunStore::FileRunStore(std::string path) : path_(std::move(path)) {}

FileRunStore::~FileRunStore() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileRunStore::OpenForAppend() {
  if (fd_ >= 0) close(fd_);
  fd_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path_));
  return absl::OkStatus();
}

absl::Status FileRunStore::Broken() const {
  return absl::InternalError(
      absl::StrCat(path_, ": an earlier write failed; what is on disk is unknown until restart"));
}

absl::StatusOr<std::optional<RunState>> FileRunStore::Load() {
  if (fd_ < 0) return std::optional<RunState>();
  WEFT_ASSIGN_OR_RETURN(const std::string log, ReadFile(path_));
  absl::string_view rest = log;
  absl::string_view payload;
  std::optional<RunState> state;
  while (TakeRecord(&rest, &payload)) {
    const size_t at = log.size() - rest.size() - payload.size();
    absl::StatusOr<RunRecord> record = DecodeRecord(payload);
    if (!record.ok()) {
      return Annotate(record.status(), absl::StrCat(path_, ": the record at byte ", at));
    }
    if (auto* whole = std::get_if<RunState>(&*record)) {
      state = std::move(*whole);
      continue;
    }
    if (!state.has_value()) {
      return absl::DataLossError(absl::StrCat(path_, ": begins with a change of no state"));
    }
    ApplyChange(std::get<RunChange>(*record), &*state);
  }
  const size_t end = log.size() - rest.size();
  if (HasLaterRecord(rest) || !state.has_value()) {
    return absl::DataLossError(absl::StrCat(path_, ": damaged at byte ", end));
  }
  if (!rest.empty() && ftruncate(fd_, static_cast<off_t>(end)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot cut the incomplete record off ", path_));
  }
  return state;
}

absl::Status FileRunStore::Append(const RunChange& change) {
  if (broken_ || fd_ < 0) return Broken();
  const std::string framed = Frame(EncodeChange(change));
  absl::Status status = WriteAll(fd_, framed);
  if (status.ok() && fdatasync(fd_) != 0) status = ErrnoStatus(errno, "cannot sync");
  broken_ = !status.ok();
  return Annotate(status, path_);
}

absl::Status FileRunStore::Replace(const RunState& state) {
  if (broken_) return Broken();
  absl::Status status = WriteFileAtomically(path_, Frame(EncodeState(state)));
  if (status.ok()) status = OpenForAppend();
  broken_ = !status.ok();
  return status;
}

}  // namespace weft
