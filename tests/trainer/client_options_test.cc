#include "services/trainer/cluster/client_options.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(ClientOptionsTest, TheConfigurationReachesTheClients) {
  RunConfig config;
  config.partition_shard_size = 3;
  config.param_sync = {.interval = 1.5, .max_bytes_per_second = 70'000};
  config.max_param_staleness = 7;
  RetryOptions retry;
  retry.patience = absl::Seconds(11);

  const PartitionTransfer::Options transfer = TransferOptions(config, retry, 2);
  EXPECT_EQ(transfer.shard_bytes, 3 << 20);
  EXPECT_EQ(transfer.streams, 2);
  EXPECT_EQ(transfer.retry.patience, absl::Seconds(11));

  const ClusterParamClient::Options params = ParamOptions(config, retry);
  EXPECT_EQ(params.interval, absl::Milliseconds(1500));
  EXPECT_EQ(params.max_bytes_per_second, 70'000);
  EXPECT_EQ(params.max_staleness, absl::Seconds(7));
  EXPECT_EQ(params.retry.patience, absl::Seconds(11));
}

TEST(ClientOptionsTest, DefaultsOfTheConfigurationAreThoseOfTheClients) {
  const RunConfig config;

  EXPECT_EQ(TransferOptions(config, {}, 1).shard_bytes, PartitionTransfer::Options().shard_bytes);
  const ClusterParamClient::Options params = ParamOptions(config, {});
  const ClusterParamClient::Options bare;
  EXPECT_EQ(params.interval, bare.interval);
  EXPECT_EQ(params.max_bytes_per_second, bare.max_bytes_per_second);
  EXPECT_EQ(params.max_staleness, bare.max_staleness);
}

TEST(ClientOptionsTest, AStalenessOfZeroMeansNever) {
  RunConfig config;
  config.max_param_staleness = 0;

  EXPECT_EQ(ParamOptions(config, {}).max_staleness, absl::InfiniteDuration());
}

}  // namespace
}  // namespace weft
