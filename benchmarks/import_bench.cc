// The stages of an import, and whole ones, on a generated graph: edges a second each.
//
// Real time of whole imports holds the disk's; WEFT_BENCH_DIR says where they go (default: /tmp).
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "graph/import/edge_parser.h"
#include "graph/import/importer.h"
#include "graph/import/interner.h"
#include "services/common/random.h"

namespace weft {
namespace {

constexpr int kRelations = 10;
constexpr uint32_t kEntities = 300'000;
constexpr int64_t kBlockEdges = 12'000;  // about a block of the reader
constexpr int64_t kImportEdges = 1'000'000;

DatasetSchema Schema(int num_partitions) {
  DatasetSchema schema;
  schema.entities = {{"node", num_partitions}};
  for (int r = 0; r < kRelations; ++r) {
    schema.relations.push_back({absl::StrFormat("r%d", r), 0, 0});
  }
  return schema;
}

std::string Lines(int64_t num_edges, uint64_t seed) {
  RandomStream random(seed, RandomUse::kTest);
  std::string text;
  for (int64_t i = 0; i < num_edges; ++i) {
    absl::StrAppendFormat(&text, "n%07u\tr%u\tn%07u\n", random.Below(kEntities),
                          random.Below(kRelations), random.Below(kEntities));
  }
  return text;
}

EdgeParser::Options ParserOptions() {
  EdgeParser::Options options;
  options.format.columns = {0, 2, 1, LineFormat::kNoColumn};
  return options;
}

void Fill(EdgeBlock* block, const std::string& text) {
  block->block.data = std::make_unique_for_overwrite<char[]>(text.size());
  std::memcpy(block->block.data.get(), text.data(), text.size());
  block->block.size = text.size();
}

void SetEdges(benchmark::State& state, int64_t per_iteration) {
  state.SetItemsProcessed(state.iterations() * per_iteration);
}

void BM_ParseBlock(benchmark::State& state) {
  const DatasetSchema schema = Schema(1);
  const EntityDictionary relations = RelationDictionary(schema);
  EdgeParser parser(ParserOptions(), schema, relations);
  EdgeBlock block;
  Fill(&block, Lines(kBlockEdges, 1));
  for (auto _ : state) {
    parser.Parse(&block);
    benchmark::DoNotOptimize(block.lhs_hash.data());
  }
  SetEdges(state, kBlockEdges);
}
BENCHMARK(BM_ParseBlock);

// Names that are known already, as most are.
void BM_InternBlock(benchmark::State& state) {
  const DatasetSchema schema = Schema(static_cast<int>(state.range(0)));
  const EntityDictionary relations = RelationDictionary(schema);
  EdgeParser parser(ParserOptions(), schema, relations);
  Interner interner(schema, ',', /*partitioned=*/true);
  std::vector<EdgeBlock> blocks(50);
  std::vector<EdgeRecord> edges;
  std::vector<uint32_t> buckets;
  for (size_t i = 0; i < blocks.size(); ++i) {
    Fill(&blocks[i], Lines(kBlockEdges, i));
    parser.Parse(&blocks[i]);
    if (!interner.Intern(blocks[i], &edges, &buckets).ok()) std::abort();
  }
  size_t next = 0;
  for (auto _ : state) {
    edges.clear();
    buckets.clear();
    if (!interner.Intern(blocks[next++ % blocks.size()], &edges, &buckets).ok()) std::abort();
  }
  SetEdges(state, kBlockEdges);
}
BENCHMARK(BM_InternBlock)->ArgName("partitions")->Arg(1)->Arg(16);

void BM_Import(benchmark::State& state) {
  const char* const base = std::getenv("WEFT_BENCH_DIR");
  const std::string folder =
      absl::StrFormat("%s/weft_import_bench_%d", base != nullptr ? base : "/tmp", getpid());
  std::filesystem::create_directories(folder);
  ImportOptions options;
  options.schema = Schema(static_cast<int>(state.range(0)));
  options.parser = ParserOptions();
  options.entity_path = folder + "/data";
  options.edge_paths = {folder + "/data/edges"};
  options.inputs = {folder + "/edges.tsv"};
  options.threads = 2;
  options.force = true;
  std::ofstream(options.inputs[0]) << Lines(kImportEdges, 1);
  for (auto _ : state) {
    if (const auto report = Import(options); !report.ok()) {
      state.SkipWithError(std::string(report.status().message()).c_str());
      break;
    }
  }
  SetEdges(state, kImportEdges);
  std::filesystem::remove_all(folder);
}
BENCHMARK(BM_Import)->ArgName("partitions")->Arg(1)->Arg(4)->UseRealTime()->MeasureProcessCPUTime();

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
