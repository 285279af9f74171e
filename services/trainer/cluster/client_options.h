// What a run's configuration says to a trainer's clients of partition and parameter servers.
#pragma once

#include "services/common/retry.h"
#include "services/common/run_config.h"
#include "services/param_server/cluster_param_client.h"
#include "services/partition_server/partition_transfer.h"

namespace weft {

PartitionTransfer::Options TransferOptions(const RunConfig& config, const RetryOptions& retry,
                                           int streams);
ClusterParamClient::Options ParamOptions(const RunConfig& config, const RetryOptions& retry);

}  // namespace weft
