#include "services/param_server/shared_snapshot.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "services/param_server/live_copy.h"

namespace weft {
namespace {

constexpr absl::string_view kMagic = "WSS1";
constexpr size_t kFloatsPerWrite = size_t{1} << 18;
constexpr uint64_t kMaxName = 1 << 16;

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using HashPtr = std::unique_ptr<XXH3_state_t, FreeHash>;

// A file whose bytes are hashed on their way, in either direction.
class HashedFile {
 public:
  HashedFile(std::string path, int flags)
      : path_(std::move(path)),
        fd_(open(path_.c_str(), flags | O_CLOEXEC, 0644)),
        open_error_(fd_ < 0 ? errno : 0),
        hash_(XXH3_createState()) {
    XXH3_64bits_reset(hash_.get());
  }
  ~HashedFile() {
    if (fd_ >= 0) close(fd_);
  }
  HashedFile(const HashedFile&) = delete;
  HashedFile& operator=(const HashedFile&) = delete;

  absl::Status opened() const {
    return fd_ >= 0 ? absl::OkStatus()
                    : ErrnoStatus(open_error_, absl::StrCat("cannot open ", path_));
  }
  uint64_t sum() const { return XXH3_64bits_digest(hash_.get()); }

  absl::Status Write(const void* bytes, size_t size) {
    XXH3_64bits_update(hash_.get(), bytes, size);
    const char* from = static_cast<const char*>(bytes);
    while (size > 0) {
      const ssize_t n = write(fd_, from, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", path_));
      from += n;
      size -= static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }
  absl::Status Read(void* bytes, size_t size) {
    char* to = static_cast<char*>(bytes);
    size_t left = size;
    while (left > 0) {
      const ssize_t n = read(fd_, to, left);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, absl::StrCat("cannot read ", path_));
      if (n == 0) return absl::DataLossError(absl::StrCat(path_, ": is cut short"));
      to += n;
      left -= static_cast<size_t>(n);
    }
    XXH3_64bits_update(hash_.get(), bytes, size);
    return absl::OkStatus();
  }

  absl::Status WriteNumber(uint64_t value) { return Write(&value, sizeof value); }
  absl::StatusOr<uint64_t> ReadNumber() {
    uint64_t value = 0;
    WEFT_RETURN_IF_ERROR(Read(&value, sizeof value));
    return value;
  }
  absl::Status WriteString(absl::string_view s) {
    WEFT_RETURN_IF_ERROR(WriteNumber(s.size()));
    return Write(s.data(), s.size());
  }
  absl::StatusOr<std::string> ReadString() {
    WEFT_ASSIGN_OR_RETURN(const uint64_t size, ReadNumber());
    if (size > kMaxName) return absl::DataLossError(absl::StrCat(path_, ": is damaged"));
    std::string s(size, '\0');
    WEFT_RETURN_IF_ERROR(Read(s.data(), s.size()));
    return s;
  }

 private:
  const std::string path_;
  const int fd_;
  const int open_error_;
  HashPtr hash_;
};

using Visit = absl::FunctionRef<absl::Status(const std::string& name, const FloatBlock& block)>;

// Every block of the state, in one order.
absl::Status ForEachBlock(const SharedState& state, Visit visit) {
  for (const Parameter& p : state.parameters.all()) {
    WEFT_RETURN_IF_ERROR(visit(p.name, p.values));
    WEFT_RETURN_IF_ERROR(visit(absl::StrCat(p.name, "/sums"), p.adagrad_sums));
  }
  for (size_t type = 0; type < state.unpartitioned.size(); ++type) {
    const EmbeddingPartition& table = state.unpartitioned[type];
    if (table.count() == 0) continue;
    WEFT_RETURN_IF_ERROR(visit(absl::StrCat("table ", type), table.embeddings));
    WEFT_RETURN_IF_ERROR(visit(absl::StrCat("table ", type, "/sums"), table.adagrad_sums));
  }
  return absl::OkStatus();
}

absl::Status WriteTo(HashedFile& file, const SnapshotId& id, const SharedState& state) {
  WEFT_RETURN_IF_ERROR(file.opened());
  WEFT_RETURN_IF_ERROR(file.Write(kMagic.data(), kMagic.size()));
  WEFT_RETURN_IF_ERROR(file.WriteString(id.run_id));
  WEFT_RETURN_IF_ERROR(file.WriteNumber(static_cast<uint64_t>(id.pass)));
  WEFT_RETURN_IF_ERROR(file.WriteNumber(static_cast<uint64_t>(state.parameters.steps)));
  uint64_t blocks = 0;
  WEFT_RETURN_IF_ERROR(ForEachBlock(state, [&](const std::string&, const FloatBlock&) {
    ++blocks;
    return absl::OkStatus();
  }));
  WEFT_RETURN_IF_ERROR(file.WriteNumber(blocks));
  std::vector<float> buffer(kFloatsPerWrite);
  WEFT_RETURN_IF_ERROR(
      ForEachBlock(state, [&](const std::string& name, const FloatBlock& block) -> absl::Status {
        WEFT_RETURN_IF_ERROR(file.WriteString(name));
        WEFT_RETURN_IF_ERROR(file.WriteNumber(static_cast<uint64_t>(block.rows())));
        WEFT_RETURN_IF_ERROR(file.WriteNumber(static_cast<uint64_t>(block.cols())));
        const auto size = static_cast<size_t>(block.size());
        for (size_t at = 0; at < size; at += kFloatsPerWrite) {
          const size_t n = std::min(kFloatsPerWrite, size - at);
          CopyLiveFloats(block.data() + at, n, buffer.data());
          WEFT_RETURN_IF_ERROR(file.Write(buffer.data(), n * sizeof(float)));
        }
        return absl::OkStatus();
      }));
  return file.WriteNumber(file.sum());
}

}  // namespace

absl::Status WriteSharedSnapshot(const std::string& path, const SnapshotId& id,
                                 const SharedState& state) {
  const std::string aside = absl::StrCat(path, ".tmp.", getpid());
  absl::Status status;
  {
    HashedFile file(aside, O_WRONLY | O_CREAT | O_TRUNC);
    status = WriteTo(file, id, state);
  }
  if (status.ok()) status = SyncFile(aside);
  if (status.ok()) status = RenameDurably(aside, path);
  if (!status.ok()) unlink(aside.c_str());
  return status;
}

absl::Status ReadSharedSnapshot(const std::string& path, const SnapshotId& id, SharedState* state) {
  HashedFile file(path, O_RDONLY);
  WEFT_RETURN_IF_ERROR(file.opened());
  std::string magic(kMagic.size(), '\0');
  WEFT_RETURN_IF_ERROR(file.Read(magic.data(), magic.size()));
  if (magic != kMagic) return absl::DataLossError(absl::StrCat(path, ": is no snapshot"));
  SnapshotId stored;
  WEFT_ASSIGN_OR_RETURN(stored.run_id, file.ReadString());
  WEFT_ASSIGN_OR_RETURN(const uint64_t pass, file.ReadNumber());
  stored.pass = static_cast<int64_t>(pass);
  if (!(stored == id)) {
    return absl::DataLossError(absl::StrCat(path, ": is of run ", stored.run_id, ", pass ",
                                            stored.pass, ", not of ", id.run_id, ", pass ",
                                            id.pass));
  }
  WEFT_ASSIGN_OR_RETURN(const uint64_t steps, file.ReadNumber());
  WEFT_ASSIGN_OR_RETURN(uint64_t blocks, file.ReadNumber());
  WEFT_RETURN_IF_ERROR(
      ForEachBlock(*state, [&](const std::string& name, const FloatBlock& block) -> absl::Status {
        if (blocks == 0) {
          return absl::FailedPreconditionError(absl::StrCat(path, ": has no ", name));
        }
        --blocks;
        WEFT_ASSIGN_OR_RETURN(const std::string stored_name, file.ReadString());
        WEFT_ASSIGN_OR_RETURN(const uint64_t rows, file.ReadNumber());
        WEFT_ASSIGN_OR_RETURN(const uint64_t cols, file.ReadNumber());
        if (stored_name != name || rows != static_cast<uint64_t>(block.rows()) ||
            cols != static_cast<uint64_t>(block.cols())) {
          return absl::FailedPreconditionError(
              absl::StrCat(path, ": has ", stored_name, " of ", rows, " x ", cols, ", not ", name,
                           " of ", block.rows(), " x ", block.cols()));
        }
        float* out = const_cast<float*>(block.data());
        return file.Read(out, static_cast<size_t>(block.size()) * sizeof(float));
      }));
  if (blocks != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": has ", blocks, " further blocks"));
  }
  const uint64_t sum = file.sum();
  WEFT_ASSIGN_OR_RETURN(const uint64_t stored_sum, file.ReadNumber());
  if (stored_sum != sum) return absl::DataLossError(absl::StrCat(path, ": checksum mismatch"));
  state->parameters.steps = static_cast<int64_t>(steps);
  return absl::OkStatus();
}

}  // namespace weft
