// EdgeCache keeps the edges of the bucket in training, and reads those of the next one meanwhile.
//
// A run of one bucket with one edge chunk reads its edges once: the order of training is drawn anew
// in every pass without touching them.
//
// Thread-safety: one caller at a time.
#pragma once

#include <compare>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "services/common/types.h"
#include "services/lock_server/lock_client.h"
#include "services/trainer/bucket_edges.h"
#include "services/trainer/edge_reader.h"
#include "services/trainer/serial_executor.h"

namespace weft {

class EdgeCache {
 public:
  // Larger buckets are not read ahead: the next one's edges would weigh as much as a table.
  static constexpr int64_t kMaxPrefetchBytes = int64_t{64} << 20;

  // `reader` must outlive this object.
  EdgeCache(const EdgeReader& reader, bool prefetch);
  ~EdgeCache();

  // The edges of `bucket` in the pass at `position`; valid until the next call.
  // Errors: as EdgeReader::Read.
  absl::StatusOr<const BucketEdges*> Get(const PassPosition& position, Bucket bucket);

  // Begins to read edges that will be asked for next. Replaces what was begun before.
  void Prefetch(const PassPosition& position, Bucket bucket);

 private:
  // What the edges depend on: not on the number of the pass.
  struct Key {
    int edge_path = 0;
    int edge_chunk = 0;
    int num_edge_chunks = 0;
    Bucket bucket;

    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    Key key;
    absl::StatusOr<BucketEdges> edges;
  };

  static Key KeyOf(const PassPosition& position, Bucket bucket);

  const EdgeReader& reader_;
  const bool prefetch_;
  std::unique_ptr<Entry> current_;
  std::unique_ptr<Entry> next_;  // written by the executor; read after Drain
  SerialExecutor executor_;      // last: it uses everything above
};

}  // namespace weft
