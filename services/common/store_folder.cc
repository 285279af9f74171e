#include "services/common/store_folder.h"

#include <random>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr absl::string_view kHeader = "weft store ";
constexpr absl::string_view kFormat = "1";

// Random, and never 0.
uint64_t RandomId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  return id;
}

bool IsRunId(absl::string_view text) {
  if (text.size() != 32) return false;
  for (const char c : text) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

absl::Status Parse(const std::string& path, absl::string_view text, StoreId* store_id,
                   std::string* run_id) {
  const absl::Status damaged = absl::DataLossError(absl::StrCat(path, ": damaged"));
  if (!absl::ConsumeSuffix(&text, "\n")) return damaged;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  absl::string_view format = lines[0];
  if (!absl::ConsumePrefix(&format, kHeader)) return damaged;
  if (format != kFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": has format ", format, "; this program knows ", kFormat));
  }
  if (lines.size() < 2 || lines.size() > 3) return damaged;
  absl::string_view store = lines[1];
  if (!absl::ConsumePrefix(&store, "store ") || store.size() != 16 ||
      !absl::SimpleHexAtoi(store, store_id) || *store_id == 0) {
    return damaged;
  }
  if (lines.size() == 3) {
    absl::string_view run = lines[2];
    if (!absl::ConsumePrefix(&run, "run ") || !IsRunId(run)) return damaged;
    *run_id = std::string(run);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreFolder>> StoreFolder::Open(const std::string& folder) {
  WEFT_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path = folder + "/store.id";
  StoreId store_id = 0;
  std::string run_id;
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (text.ok()) {
    WEFT_RETURN_IF_ERROR(Parse(path, *text, &store_id, &run_id));
    return std::unique_ptr<StoreFolder>(new StoreFolder(path, store_id, RandomId(), run_id));
  }
  if (!absl::IsNotFound(text.status())) return text.status();
  std::unique_ptr<StoreFolder> made(new StoreFolder(path, RandomId(), RandomId(), ""));
  WEFT_RETURN_IF_ERROR(made->Write(""));
  return made;
}

std::unique_ptr<StoreFolder> StoreFolder::InMemory(StoreId store_id, Incarnation incarnation,
                                                   std::string run_id) {
  return std::unique_ptr<StoreFolder>(
      new StoreFolder("", store_id, incarnation, std::move(run_id)));
}

StoreFolder::StoreFolder(std::string path, StoreId store_id, Incarnation incarnation,
                         std::string run_id)
    : path_(std::move(path)),
      store_id_(store_id),
      incarnation_(incarnation),
      run_id_(std::move(run_id)) {}

absl::Status StoreFolder::Write(const std::string& run_id) const {
  if (path_.empty()) return absl::OkStatus();
  std::string text =
      absl::StrCat(kHeader, kFormat, "\nstore ", absl::Hex(store_id_, absl::kZeroPad16), "\n");
  if (!run_id.empty()) absl::StrAppend(&text, "run ", run_id, "\n");
  return WriteFileAtomically(path_, text);
}

std::string StoreFolder::run_id() const {
  MutexLock lock(&mu_);
  return run_id_;
}

absl::Status StoreFolder::BindRun(const std::string& run_id) {
  if (!IsRunId(run_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a run id has 32 hexadecimal digits, not \"", run_id, "\""));
  }
  MutexLock lock(&mu_);
  if (run_id_ == run_id) return absl::OkStatus();
  if (!run_id_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": belongs to run ", run_id_, ", not to run ", run_id));
  }
  WEFT_RETURN_IF_ERROR(Write(run_id));
  run_id_ = run_id;
  return absl::OkStatus();
}

}  // namespace weft
