// FileRunStore keeps a run's state in one file of this machine, a log of records.
//
//   log    := record*                       first a state, then the changes to it
//   record := magic length header_sum payload_sum payload
//   magic  := "WRL1"        length := uint32, bytes of the payload
//   header_sum  := uint32, low half of the XXH3-64 of magic, length and payload_sum
//   payload_sum := uint64, XXH3-64 of the payload
//   payload     := weft.v1.RunRecord
// Numbers are little-endian. A change is appended and fdatasynced. Replace writes a new log aside,
// fsyncs it and renames it over the old one.
//
// A process that is killed while it appends leaves an incomplete record at the end, which nobody
// was told of: it is dropped when the log is opened. A damaged record with another one after it is
// DataLoss: something that was acknowledged would be missing.
#pragma once

#include <memory>
#include <string>

#include "services/lock_server/run_store.h"

namespace weft {

class FileRunStore : public RunStore {
 public:
  // The store in the file `path`, which need not exist. The caller keeps others away from it.
  static absl::StatusOr<std::unique_ptr<FileRunStore>> Open(std::string path);
  ~FileRunStore() override;

  absl::StatusOr<std::optional<RunState>> Load() override;
  absl::Status Append(const RunChange& change) override;
  absl::Status Replace(const RunState& state) override;

 private:
  explicit FileRunStore(std::string path);

  absl::Status OpenForAppend();
  absl::Status Broken() const;

  const std::string path_;
  int fd_ = -1;  // -1: no log yet
  bool broken_ = false;
};

}  // namespace weft
