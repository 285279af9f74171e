// EdgePipeline reads the inputs one after the other and parses their blocks in parallel. It gives
// the blocks in the order of the inputs, so that what is made of them does not depend on threads.
//
// A fixed number of blocks goes round, which bounds memory. Workers read (one at a time) and parse
// (all at once); a compressed input is decompressed by whoever reads.
//
// Thread-safety: the public methods belong to one thread, the consumer.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dataset_manifest.h"
#include "graph/entity_dictionary.h"
#include "graph/import/byte_source.h"
#include "graph/import/edge_parser.h"
#include "graph/import/line_reader.h"
#include "services/common/mutex.h"

namespace weft {

class EdgePipeline {
 public:
  struct Options {
    EdgeParser::Options parser;
    LineReader::Options reader;
    int num_threads = 1;
    int num_blocks = 4;  // > num_threads
  };

  // Begins to work. `schema` and `relations` must outlive this object.
  EdgePipeline(const Options& options, const DatasetSchema& schema,
               const EntityDictionary& relations, std::vector<std::string> inputs);
  ~EdgePipeline();

  // The next block; null at the end of the last input. After an error there is no next.
  absl::StatusOr<std::unique_ptr<EdgeBlock>> Next();

  // Gives a block back for the next lines.
  void Recycle(std::unique_ptr<EdgeBlock> block);

  // Of an input whose blocks have all been given.
  InputDigest digest(int input) const;
  // Bytes read of all inputs so far, before decompression.
  int64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct Result {
    absl::Status status;
    std::unique_ptr<EdgeBlock> block;  // null at the end
  };

  void Work();
  std::unique_ptr<EdgeBlock> TakeFree();
  absl::StatusOr<bool> ReadBlock(EdgeBlock* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mu_);
  void Deliver(int64_t sequence, Result result);

  const Options options_;
  const DatasetSchema& schema_;
  const EntityDictionary& relations_;
  const std::vector<std::string> inputs_;

  mutable Mutex read_mu_;
  std::unique_ptr<LineReader> reader_ ABSL_GUARDED_BY(read_mu_);  // of inputs_[digests_.size()]
  bool first_block_ ABSL_GUARDED_BY(read_mu_) = true;             // of that input
  std::vector<InputDigest> digests_ ABSL_GUARDED_BY(read_mu_);    // of the inputs read to their end
  int64_t next_to_read_ ABSL_GUARDED_BY(read_mu_) = 0;
  bool read_all_ ABSL_GUARDED_BY(read_mu_) = false;
  int64_t bytes_before_ ABSL_GUARDED_BY(read_mu_) = 0;  // of the inputs read to their end

  // Apart from read_mu_, which is held while a read waits.
  std::atomic<int64_t> bytes_read_ = 0;

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<EdgeBlock>> free_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, Result> ready_ ABSL_GUARDED_BY(mu_);  // by sequence
  int64_t next_to_give_ = 0;
  bool ended_ = false;

  std::vector<std::jthread> workers_;  // last: they use all of the above
};

}  // namespace weft
