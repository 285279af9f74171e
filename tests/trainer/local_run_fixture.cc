#include "tests/trainer/local_run_fixture.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "graph/edge_bucket_file.h"
#include "graph/entity_files.h"
#include "services/common/check.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"

namespace weft::testing {
namespace {

constexpr int kDimension = 4;

bool IsEmpty(const LocalDataOptions& data, Bucket b) {
  return std::ranges::find(data.empty_buckets, b) != data.empty_buckets.end();
}

ParameterSet MakeParameters() {
  ParameterSet parameters;
  parameters.Add("relations/0/operator/rhs/translation", {kDimension}, 1, kDimension);
  return parameters;
}

// The first value, when all are equal.
double CountOf(const FloatBlock& sums) {
  if (sums.empty()) return 0;
  const bool equal = std::ranges::all_of(sums.span(), [&](float x) { return x == sums.data()[0]; });
  return equal ? sums.data()[0] : -1;
}

void AddOne(FloatBlock* sums) {
  for (float& x : sums->span()) x += 1;
}

}  // namespace

RunConfig MakeLocalData(const std::string& folder, const LocalDataOptions& options) {
  RunConfig config;
  EntityConfig& user = config.entities.emplace_back();
  user.name = "user";
  user.num_partitions = options.num_partitions;
  RelationConfig& follows = config.relations.emplace_back();
  follows.name = "follows";
  follows.operator_name = "translation";
  if (options.with_items) {
    config.entities.emplace_back().name = "item";
    RelationConfig& likes = config.relations.emplace_back();
    likes.name = "likes";
    likes.rhs = 1;
  }
  config.dimension = kDimension;
  config.global_emb = false;
  config.entity_path = absl::StrCat(folder, "/entities");
  config.checkpoint_path = absl::StrCat(folder, "/model");
  config.num_epochs = 2;
  config.eval_fraction = 0;
  config.seed = 1;
  WEFT_CHECK(MakeDirectories(config.entity_path).ok());
  for (int p = 0; p < options.num_partitions; ++p) {
    WEFT_CHECK(WriteEntityCount(config.entity_path, "user", p, options.entities).ok());
  }
  if (options.with_items) {
    WEFT_CHECK(WriteEntityCount(config.entity_path, "item", 0, options.entities).ok());
  }
  for (const std::string& name : options.edge_paths) {
    config.edge_paths.push_back(absl::StrCat(folder, "/", name));
    WEFT_CHECK(MakeDirectories(config.edge_paths.back()).ok());
    for (int lhs = 0; lhs < options.num_partitions; ++lhs) {
      for (int rhs = 0; rhs < options.num_partitions; ++rhs) {
        if (IsEmpty(options, {lhs, rhs})) continue;
        auto writer =
            EdgeBucketWriter::Create(EdgeBucketPath(config.edge_paths.back(), {lhs, rhs}), false);
        WEFT_CHECK(writer.ok());
        EdgeList edges;
        edges.lhs.resize(static_cast<size_t>(options.edges));
        edges.rhs = edges.lhs;
        edges.rel = edges.lhs;
        WEFT_CHECK((*writer)->Append(edges).ok());
        WEFT_CHECK((*writer)->Finish().ok());
      }
    }
  }
  return config;
}

CountingTrainer::CountingTrainer(LocalRun* run, const LocalDataOptions& data)
    : run_(run), data_(data) {
  live_.parameters = MakeParameters();
  const auto& entities = run->config().entities;
  for (const EntityConfig& type : entities) {
    live_.unpartitioned.push_back(type.num_partitions == 1
                                      ? EmbeddingPartition(data.entities, kDimension)
                                      : EmbeddingPartition());
  }
}

absl::Status CountingTrainer::Train(int max_grants) {
  if (!joined_) WEFT_RETURN_IF_ERROR(run_->params().Join(&live_));
  joined_ = true;
  while (static_cast<int>(grants.size()) < max_grants) {
    AcquireRequest request;
    request.number = number_ + 1;
    for (const auto& [key, copy] : cache_) request.resident.push_back({key, copy.first});
    request.wait = absl::ZeroDuration();
    WEFT_ASSIGN_OR_RETURN(const AcquireResult result, run_->lock().AcquireBucket(request));
    if (result.run_done) return absl::OkStatus();
    if (!result.grant.has_value()) return absl::InternalError("nothing to train, but not done");
    ++number_;
    WEFT_RETURN_IF_ERROR(TrainGrant(*result.grant));
    grants.push_back(*result.grant);
  }
  return absl::OkStatus();
}

absl::Status CountingTrainer::TrainGrant(const Grant& grant) {
  Step("granted");
  std::map<PartitionKey, std::pair<Token, EmbeddingPartition>> needed;
  for (const GrantedPartition& p : grant.partitions) {
    auto& [token, table] = needed[p.key];
    token = grant.token;
    switch (p.source) {
      case GrantedPartition::Source::kKeep:
        table = std::move(cache_.at(p.key).second);
        break;
      case GrantedPartition::Source::kInitialise:
        table = MakeInitialEmbeddings(*run_->config().seed, p.key, data_.entities, kDimension,
                                      run_->config().init_scale);
        break;
      case GrantedPartition::Source::kRead:
        table = EmbeddingPartition(data_.entities, kDimension);
        WEFT_RETURN_IF_ERROR(run_->partitions().Read({p.key, p.base}, &table));
        break;
    }
  }
  cache_ = std::move(needed);
  ReleaseRequest release;
  release.token = grant.token;
  for (const GrantedBucket& b : grant.buckets) {
    BucketStats stats;
    stats.bucket = b.bucket;
    stats.trained_edges = b.expected_edges;
    stats.train_seconds = 1e-3;
    const double loss = losses.empty() ? 0.5 : losses[static_cast<size_t>(grant.position.epoch)];
    stats.train = {b.expected_edges, {{"loss", loss}}};
    release.buckets.push_back(stats);
    if (data_.num_partitions > 1) {
      AddOne(&cache_.at({0, b.bucket.lhs}).second.adagrad_sums);
      AddOne(&cache_.at({0, b.bucket.rhs}).second.adagrad_sums);
    }
    for (Parameter& p : live_.parameters.all()) AddOne(&p.adagrad_sums);
    for (EmbeddingPartition& table : live_.unpartitioned) AddOne(&table.adagrad_sums);
  }
  Step("trained");
  WEFT_RETURN_IF_ERROR(run_->params().Flush());
  for (const auto& [key, copy] : cache_) {
    WEFT_RETURN_IF_ERROR(run_->partitions().Store({key, grant.token}, copy.second));
    release.stored.push_back(key);
    Step("stored");
  }
  WEFT_RETURN_IF_ERROR(run_->lock().ReleaseBucket(release).status());
  Step("released");
  return absl::OkStatus();
}

absl::StatusOr<VersionCounts> ReadCounts(const RunConfig& config, int64_t version) {
  const CheckpointDir dir(config.checkpoint_path, {});
  VersionCounts counts;
  for (const EntityConfig& type : config.entities) {
    for (int p = 0; p < type.num_partitions; ++p) {
      const std::string path = dir.EmbeddingsPath(type.name, p, version);
      WEFT_ASSIGN_OR_RETURN(const EmbeddingsShape shape, ReadEmbeddingsShape(path));
      WEFT_ASSIGN_OR_RETURN(const EmbeddingPartition table,
                            ReadEmbeddingsFile(path, shape.count, shape.dimension));
      counts.tables[absl::StrCat(type.name, "_", p)] = CountOf(table.adagrad_sums);
    }
  }
  ParameterSet parameters = MakeParameters();
  WEFT_RETURN_IF_ERROR(ReadModelFile(dir.ModelPath(version), &parameters));
  counts.parameters = CountOf(parameters.all()[0].adagrad_sums);
  return counts;
}

double UsesInPass(const LocalDataOptions& data, int p) {
  double uses = 0;
  for (int other = 0; other < data.num_partitions; ++other) {
    uses += IsEmpty(data, {p, other}) ? 0 : 1;
    uses += IsEmpty(data, {other, p}) ? 0 : 1;
  }
  return uses;
}

}  // namespace weft::testing
