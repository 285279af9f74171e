#include "graph/import/importer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/entity_files.h"
#include "graph/import/bad_line_log.h"
#include "graph/import/batch_writer.h"
#include "graph/import/byte_source.h"
#include "graph/import/edge_output.h"
#include "graph/import/edge_pipeline.h"
#include "graph/import/header_watch.h"
#include "graph/import/interner.h"
#include "graph/import/previous_import.h"
#include "graph/import/publication.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {

namespace {

constexpr int kBatches = 3;
// Blocks, batches and what the libraries take.
constexpr int64_t kFixedMemoryBytes = int64_t{48} << 20;
constexpr auto kProgressInterval = std::chrono::milliseconds(100);

int64_t SortMemory(const ImportOptions& options) {
  return std::clamp(options.memory_bytes / 16, int64_t{4} << 20, int64_t{1} << 30);
}

// The work between looking at the inputs and publishing: fills the staging folders.
class ImportJob {
 public:
  ImportJob(const ImportOptions& options, const Publication& publication)
      : options_(options),
        publication_(publication),
        deferred_(options.rare.entity_min_count > 1 || options.rare.relation_min_count > 1 ||
                  options.schema.featurized()),
        relations_(RelationDictionary(options.schema)),
        interner_(options.schema, options.feature_delimiter, /*partitioned=*/!deferred_),
        bad_lines_(options.inputs, EdgeFolders(), options.max_bad_lines),
        headers_(options.schema, options.parser.format),
        output_(EdgeFolders(), SinkOptions()),
        spool_({static_cast<uint32_t>(options.inputs.size()), SortMemory(options),
                publication.StagingFolder(0)}) {}

  absl::Status Run() {
    InitReport();
    WEFT_RETURN_IF_ERROR(ReadInputs());
    if (deferred_) {
      WEFT_RETURN_IF_ERROR(Filter());
    }
    WEFT_RETURN_IF_ERROR(bad_lines_.Finish());
    FinishReport();
    return absl::OkStatus();
  }

  const ImportReport& report() const { return report_; }
  const std::vector<DatasetManifest::Input>& inputs() const { return inputs_; }

  // Writes the manifests, after Run.
  absl::Status WriteManifests() const;

 private:
  std::vector<std::string> EdgeFolders() const {
    std::vector<std::string> folders;
    for (size_t i = 0; i < options_.edge_paths.size(); ++i) {
      folders.push_back(publication_.StagingFolder(publication_.folder_of_edge_path(i)));
    }
    return folders;
  }
  BucketSink::Options SinkOptions() const;
  void InitReport();
  absl::Status ReadInputs();
  absl::Status TakeBlocks(EdgePipeline* pipeline, BatchWriter* writer);
  absl::Status TakeBlock(const EdgeBlock& block, EdgeBatch* batch);
  void ReportProgress(const EdgePipeline& pipeline);
  absl::Status Filter();
  absl::Status WriteEntities(const std::vector<EntityDictionary>& entities);
  absl::Status WriteRelations(const std::vector<std::string_view>& names);
  std::vector<std::string_view> RelationNames() const;
  void FinishReport();

  const ImportOptions& options_;
  const Publication& publication_;
  // Rare relations and entities are known only at the end, and bags are not to be written while
  // others are made: until then edges wait in spool_.
  const bool deferred_;
  const EntityDictionary relations_;
  Interner interner_;
  BadLineLog bad_lines_;
  HeaderWatch headers_;
  std::vector<FeatureBags> bags_;  // by type, when the edges are written
  EdgeOutput output_;
  ExternalPartitioner spool_;

  int64_t total_bytes_ = 0;
  int64_t edges_read_ = 0;
  std::chrono::steady_clock::time_point next_progress_ = {};
  ImportReport report_;
  std::vector<DatasetManifest::Input> inputs_;
  uint64_t relation_names_hash_ = 0;
};

BucketSink::Options ImportJob::SinkOptions() const {
  BucketSink::Options sink;
  sink.spill_folder = publication_.StagingFolder(0);
  sink.num_lhs_partitions = options_.schema.NumPartitions(Side::kLhs);
  sink.num_rhs_partitions = options_.schema.NumPartitions(Side::kRhs);
  sink.weighted = options_.parser.format.column(EdgeField::kWeight) != LineFormat::kNoColumn;
  sink.drop_duplicates = options_.drop_duplicates;
  const int64_t num_buckets = int64_t{sink.num_lhs_partitions} * sink.num_rhs_partitions;
  sink.write_empty = options_.pbg_compatible || num_buckets <= options_.max_empty_buckets;
  sink.memory_bytes = SortMemory(options_);
  sink.schema = &options_.schema;
  sink.bags = options_.schema.featurized() ? &bags_ : nullptr;
  return sink;
}

void ImportJob::InitReport() {
  for (const std::string& input : options_.inputs) {
    report_.inputs.emplace_back().name = InputName(input);
    std::error_code error;
    const auto size = std::filesystem::file_size(input, error);
    total_bytes_ = error || total_bytes_ < 0 ? -1 : total_bytes_ + static_cast<int64_t>(size);
  }
  report_.num_lhs_partitions = options_.schema.NumPartitions(Side::kLhs);
  report_.num_rhs_partitions = options_.schema.NumPartitions(Side::kRhs);
}

absl::Status ImportJob::ReadInputs() {
  EdgePipeline::Options pipeline_options;
  pipeline_options.parser = options_.parser;
  pipeline_options.num_threads = options_.threads;
  pipeline_options.num_blocks = 2 * options_.threads + 2;
  EdgePipeline pipeline(pipeline_options, options_.schema, relations_, options_.inputs);
  BatchWriter writer(
      [this](EdgeBatch& batch) {
        if (!deferred_) return output_.Add(batch.input, batch.edges, batch.buckets);
        batch.buckets.assign(batch.edges.size(), static_cast<uint32_t>(batch.input));
        return spool_.Add(batch.edges, batch.buckets);
      },
      [this] { return deferred_ ? spool_.Finish() : output_.Finish(); }, kBatches);
  WEFT_RETURN_IF_ERROR(TakeBlocks(&pipeline, &writer));
  writer.Close();
  // While the last edges are written:
  if (!deferred_) {
    WEFT_RETURN_IF_ERROR(WriteEntities(interner_.entities()));
    WEFT_RETURN_IF_ERROR(WriteRelations(RelationNames()));
  }
  for (size_t i = 0; i < options_.inputs.size(); ++i) {
    const InputDigest digest = pipeline.digest(static_cast<int>(i));
    inputs_.push_back({report_.inputs[i].name, digest.bytes, digest.hash, 0, 0, 0});
  }
  return writer.Wait();
}

absl::Status ImportJob::TakeBlocks(EdgePipeline* pipeline, BatchWriter* writer) {
  while (true) {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<EdgeBlock> block, pipeline->Next());
    if (block == nullptr) return absl::OkStatus();
    std::unique_ptr<EdgeBatch> batch = writer->Take();
    if (batch == nullptr) return writer->status();
    WEFT_RETURN_IF_ERROR(TakeBlock(*block, batch.get()));
    writer->Submit(std::move(batch));
    pipeline->Recycle(std::move(block));
    ReportProgress(*pipeline);
  }
}

absl::Status ImportJob::TakeBlock(const EdgeBlock& block, EdgeBatch* batch) {
  ImportReport::Input& report = report_.inputs[block.input];
  WEFT_RETURN_IF_ERROR(bad_lines_.Add(block.input, report.lines + 1, block.lines.bad));
  report.lines += block.lines.num_lines;
  report.blank_lines += block.lines.num_blank;
  report.bad_lines += static_cast<int64_t>(block.lines.bad.size());
  if (options_.parser.skip_unknown_relations) {
    report.unknown_relations += block.unknown_relations;
  }
  headers_.Look(block, interner_);

  batch->input = block.input;
  const int64_t entities_before = interner_.num_entities();
  WEFT_RETURN_IF_ERROR(interner_.Intern(block, &batch->edges, &batch->buckets));
  report.new_entities += interner_.num_entities() - entities_before;
  report.edges += static_cast<int64_t>(block.size());
  edges_read_ += static_cast<int64_t>(block.size());

  const int64_t needed = interner_.MemoryBytes() + SortMemory(options_) + kFixedMemoryBytes;
  if (needed > options_.memory_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(report.name, ":", report.lines, ": the names of ", interner_.num_entities(),
                     " entities take ", interner_.MemoryBytes() >> 20, " MiB, more than --memory (",
                     options_.memory_bytes >> 20, " MiB) has left; give it more"));
  }
  return absl::OkStatus();
}

void ImportJob::ReportProgress(const EdgePipeline& pipeline) {
  if (!options_.on_progress) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_progress_) return;
  next_progress_ = now + kProgressInterval;
  options_.on_progress({pipeline.bytes_read(), std::max<int64_t>(0, total_bytes_), edges_read_,
                        interner_.num_entities(), "reading"});
}

absl::Status ImportJob::Filter() {
  const auto num_inputs = static_cast<int>(options_.inputs.size());
  RareFilter filter(options_.rare, options_.schema, interner_, spool_, num_inputs, &bags_);
  WEFT_RETURN_IF_ERROR(filter.Run());
  WEFT_RETURN_IF_ERROR(WriteEntities(filter.entities()));
  WEFT_RETURN_IF_ERROR(WriteRelations(filter.relation_names()));
  for (int input = 0; input < num_inputs; ++input) {
    WEFT_RETURN_IF_ERROR(filter.ForEachEdge(
        input,
        [&](std::span<const EdgeRecord> edges, std::span<const uint32_t> buckets) {
          return output_.Add(input, edges, buckets);
        },
        &report_.inputs[input].rare));
    report_.inputs[input].new_entities = filter.new_entities(input);
  }
  report_.warnings = filter.warnings();
  report_.dropped_relations = filter.dropped_relations();
  report_.dropped_entities = filter.dropped_entities();
  return output_.Finish();
}

std::vector<std::string_view> ImportJob::RelationNames() const {
  std::vector<std::string_view> names;
  if (options_.schema.dynamic_relations) {
    interner_.relations().ForEachName(0, [&](std::string_view name) { names.push_back(name); });
  } else {
    for (const DatasetSchema::Relation& relation : options_.schema.relations) {
      names.push_back(relation.name);
    }
  }
  return names;
}

absl::Status ImportJob::WriteEntities(const std::vector<EntityDictionary>& entities) {
  const std::string folder = publication_.StagingFolder(0);
  for (size_t t = 0; t < entities.size(); ++t) {
    const std::string& type = options_.schema.entities[t].name;
    DatasetManifest::EntityCounts& counts = report_.entities.emplace_back();
    counts.type = type;
    for (PartitionId partition = 0; partition < entities[t].num_partitions(); ++partition) {
      counts.counts.push_back(entities[t].size(partition));
      WEFT_RETURN_IF_ERROR(WriteEntityCount(folder, type, partition, entities[t].size(partition)));
      WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<NamesWriter> writer,
                            NamesWriter::Create(EntityNamesPath(folder, type, partition)));
      absl::Status status;
      entities[t].ForEachName(partition, [&](std::string_view name) {
        if (status.ok()) status = writer->Add(name);
      });
      WEFT_RETURN_IF_ERROR(status);
      WEFT_RETURN_IF_ERROR(writer->Finish());
    }
  }
  return absl::OkStatus();
}

absl::Status ImportJob::WriteRelations(const std::vector<std::string_view>& names) {
  const std::string folder = publication_.StagingFolder(0);
  report_.num_relations = static_cast<int64_t>(names.size());
  std::string joined;
  for (const std::string_view name : names) joined.append(name).push_back('\0');
  relation_names_hash_ = HashBytes(joined);
  if (options_.schema.dynamic_relations) {
    WEFT_RETURN_IF_ERROR(WriteRelationCount(folder, report_.num_relations));
  }
  return WriteRelationNames(folder, std::vector<std::string>(names.begin(), names.end()));
}

void ImportJob::FinishReport() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    ImportReport::Input& report = report_.inputs[i];
    const BucketSink::Result& result = output_.result(static_cast<int>(i));
    report.edges = result.num_edges;
    report.duplicates = result.num_duplicates;
    report.nonempty_buckets = static_cast<int64_t>(result.buckets.size());
    inputs_[i].edges = report.edges;
    inputs_[i].bad_lines = report.bad_lines;
    inputs_[i].new_entities = report.new_entities;
  }
  for (const int input : headers_.Suspects()) {
    report_.warnings.push_back(absl::StrCat(report_.inputs[input].name,
                                            ": line 1 looks like the names of the columns (its "
                                            "names occur on no other line); if it is, "
                                            "import with --skip-header"));
  }
  const bool has_relations =
      options_.parser.format.column(EdgeField::kRel) != LineFormat::kNoColumn;
  if (!has_relations && options_.schema.relations.size() > 1) {
    report_.warnings.push_back(absl::StrCat("without --rel-col every edge has relation ",
                                            options_.schema.relations[0].name, ", the first of ",
                                            options_.schema.relations.size()));
  }
}

absl::Status ImportJob::WriteManifests() const {
  DatasetManifest manifest;
  manifest.settings = ImportSettings(options_);
  manifest.inputs = inputs_;
  manifest.import_id = ImportId(manifest.inputs, manifest.settings);
  manifest.entities = report_.entities;
  manifest.num_relations = report_.num_relations;
  manifest.relation_names_hash = relation_names_hash_;
  for (size_t folder = 0; folder < publication_.folders().size(); ++folder) {
    const std::string staging = publication_.StagingFolder(folder);
    manifest.buckets.clear();
    for (size_t i = 0; i < options_.edge_paths.size(); ++i) {
      if (publication_.folder_of_edge_path(i) != folder) continue;
      manifest.buckets = output_.result(static_cast<int>(i)).buckets;
    }
    WEFT_ASSIGN_OR_RETURN(manifest.files, publication_.DigestStagedFiles(folder));
    WEFT_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(staging, "/", DatasetManifest::kFileName),
                                             ManifestToJson(manifest)));
  }
  return absl::OkStatus();
}

// What the manifests of an earlier, equal import say.
ImportReport ReportOf(const PreviousImport& previous, const Publication& publication,
                      const ImportOptions& options) {
  ImportReport report;
  report.already_imported = true;
  const DatasetManifest& manifest = *previous.folders[0].manifest;
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    const DatasetManifest::Input& input = manifest.inputs[i];
    ImportReport::Input& in = report.inputs.emplace_back();
    in.name = InputName(options.inputs[i]);
    in.edges = input.edges;
    in.bad_lines = input.bad_lines;
    in.new_entities = input.new_entities;
    in.nonempty_buckets = static_cast<int64_t>(
        previous.folders[publication.folder_of_edge_path(i)].manifest->buckets.size());
  }
  report.entities = manifest.entities;
  report.num_relations = manifest.num_relations;
  report.num_lhs_partitions = options.schema.NumPartitions(Side::kLhs);
  report.num_rhs_partitions = options.schema.NumPartitions(Side::kRhs);
  return report;
}

// True: the same import is there. False: nothing is. An error: something else is.
absl::StatusOr<bool> IsAlreadyImported(const PreviousImport& previous, const ImportOptions& options,
                                       const std::vector<DatasetManifest::Input>& inputs) {
  if (!previous.exists()) return false;
  std::vector<std::string> differences = previous.Differences(inputs, ImportSettings(options));
  if (differences.empty()) {
    int64_t bad_lines = 0;
    for (const DatasetManifest::Input& input : previous.folders[0].manifest->inputs) {
      bad_lines += input.bad_lines;
    }
    if (bad_lines <= options.max_bad_lines) return true;
    differences.push_back(absl::StrCat(
        bad_lines, " bad lines were left out, --max-bad-lines is now ", options.max_bad_lines));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      options.entity_path, " already holds another import:\n  ", absl::StrJoin(differences, "\n  "),
      "\ngive --force to replace it, or other paths in the configuration"));
}

// Opens every input once, before anything is made. True: all can be read again.
absl::StatusOr<bool> CheckInputs(const std::vector<std::string>& inputs) {
  bool rereadable = true;
  for (const std::string& input : inputs) {
    if (IsStandardInput(input)) {
      rereadable = false;
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(const bool again, IsRereadable(input));
    rereadable = rereadable && again;
    // Opening a pipe would take bytes out of it.
    if (again) WEFT_RETURN_IF_ERROR(ByteSource::Open(input).status());
  }
  return rereadable;
}

}  // namespace

int64_t ImportReport::num_edges() const {
  int64_t sum = 0;
  for (const Input& input : inputs) sum += input.edges;
  return sum;
}

int64_t ImportReport::num_entities() const {
  int64_t sum = 0;
  for (const DatasetManifest::EntityCounts& type : entities) {
    for (const int64_t count : type.counts) sum += count;
  }
  return sum;
}

absl::StatusOr<ImportReport> Import(const ImportOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckImportOptions(options));
  WEFT_ASSIGN_OR_RETURN(const bool rereadable, CheckInputs(options.inputs));
  WEFT_ASSIGN_OR_RETURN(
      const std::unique_ptr<Publication> publication,
      Publication::Begin(options.entity_path, options.edge_paths, options.on_step));
  WEFT_ASSIGN_OR_RETURN(const PreviousImport previous, PreviousImport::Find(*publication));
  const bool compare = previous.exists() && !options.force;
  if (compare && rereadable) {
    std::vector<DatasetManifest::Input> inputs;
    for (const std::string& input : options.inputs) {
      WEFT_ASSIGN_OR_RETURN(const InputDigest digest, DigestInput(input));
      inputs.push_back({InputName(input), digest.bytes, digest.hash, 0, 0, 0});
    }
    WEFT_ASSIGN_OR_RETURN(const bool already, IsAlreadyImported(previous, options, inputs));
    if (already) return ReportOf(previous, *publication, options);
  }
  ImportJob job(options, *publication);
  WEFT_RETURN_IF_ERROR(job.Run());
  if (compare && !rereadable) {
    // A pipe shows only now whether it is the same.
    WEFT_ASSIGN_OR_RETURN(const bool already, IsAlreadyImported(previous, options, job.inputs()));
    if (already) return ReportOf(previous, *publication, options);
  }
  WEFT_RETURN_IF_ERROR(job.WriteManifests());
  WEFT_RETURN_IF_ERROR(publication->Commit());
  return job.report();
}

}  // namespace weft
