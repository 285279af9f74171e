#include "services/trainer/cluster/client_options.h"

#include "absl/time/time.h"

namespace weft {

PartitionTransfer::Options TransferOptions(const RunConfig& config, const RetryOptions& retry,
                                           int streams) {
  PartitionTransfer::Options options;
  options.shard_bytes = int64_t{config.partition_shard_size} << 20;
  options.streams = streams;
  options.retry = retry;
  return options;
}

ClusterParamClient::Options ParamOptions(const RunConfig& config, const RetryOptions& retry) {
  ClusterParamClient::Options options;
  options.interval = absl::Seconds(config.param_sync.interval);
  options.max_bytes_per_second = config.param_sync.max_bytes_per_second;
  options.max_staleness = config.max_param_staleness == 0
                              ? absl::InfiniteDuration()
                              : absl::Seconds(config.max_param_staleness);
  options.retry = retry;
  return options;
}

}  // namespace weft
