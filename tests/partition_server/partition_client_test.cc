#include "services/partition_server/partition_client.h"

#include <memory>
#include <string>
#include <utility>

#include "services/common/check.h"
#include "services/partition_server/blob_store.h"
#include "services/partition_server/local_partition_client.h"
#include "services/partition_server/memory_blob_storage.h"
#include "services/partition_server/partition_file_store.h"
#include "tests/partition_server/partition_client_contract.h"

namespace weft::testing {
namespace {

constexpr int64_t kCapacity = int64_t{1} << 30;

std::unique_ptr<PartitionClient> OpenFileStore(const std::string& folder) {
  auto store = PartitionFileStore::Open(folder + "/blobs", {"user", "item"}, 0.1);
  WEFT_CHECK(store.ok());
  return *std::move(store);
}

INSTANTIATE_TEST_SUITE_P(File, PartitionClientContractTest, ::testing::Values(OpenFileStore));

// A client and the store that it is about.
class OwningLocalClient : public LocalPartitionClient {
 public:
  OwningLocalClient(std::unique_ptr<BlobStore> store, int64_t shard_bytes)
      : LocalPartitionClient(store.get(), shard_bytes), store_(std::move(store)) {}

 private:
  const std::unique_ptr<BlobStore> store_;
};

template <int64_t kShardBytes>
std::unique_ptr<PartitionClient> MakeLocalClient(const std::string&) {
  return std::make_unique<OwningLocalClient>(
      *BlobStore::Open(std::make_unique<MemoryBlobStorage>(kCapacity), {.reserve_bytes = 0}),
      kShardBytes);
}

// All rows in one shard, and each in its own.
INSTANTIATE_TEST_SUITE_P(Local, PartitionClientContractTest,
                         ::testing::Values(MakeLocalClient<1 << 20>, MakeLocalClient<1>));

}  // namespace
}  // namespace weft::testing
