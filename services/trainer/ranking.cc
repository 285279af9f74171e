#include "services/trainer/ranking.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/trainer/kernels/rank_count.h"
#include "services/trainer/parallel_for.h"
#include "services/trainer/ranking_scorer.h"
#include "services/trainer/ranking_tally.h"
#include "services/trainer/ranking_tiles.h"

namespace weft {
namespace {

absl::Status CheckParameters(const ParameterSet& parameters) {
  for (const Parameter& parameter : parameters.all()) {
    const int64_t bad = FindNonFinite(parameter.values.data(), parameter.values.size());
    if (bad < parameter.values.size()) {
      return absl::DataLossError(absl::StrCat("parameter ", parameter.name, ": element ", bad,
                                              " is ", parameter.values.data()[bad],
                                              "; a model that is not finite has no ranks"));
    }
  }
  return absl::OkStatus();
}

// Goes through the questions batch by batch, and for each batch three times through the partitions
// that it needs: for the questions' own entities, for the answers' scores, and for all candidates.
class Ranker {
 public:
  Ranker(const ModelSpec& spec, const ParameterSet& parameters, const EntityIndex& entities,
         PartitionReader* tables, const RankingQueries& queries, const EdgeFilter& filter,
         const RankingOptions& options)
      : spec_(spec),
        parameters_(parameters),
        entities_(entities),
        tables_(tables),
        queries_(queries),
        filter_(filter),
        options_(options),
        tally_(queries, filter),
        workers_(std::max(options.num_threads, 1)) {}

  absl::StatusOr<std::vector<EdgeCounts>> Run(int64_t num_edges) {
    WEFT_RETURN_IF_ERROR(CheckParameters(parameters_));
    for (Worker& worker : workers_) {
      if (options_.make_scorer) {
        WEFT_ASSIGN_OR_RETURN(worker.scorer, options_.make_scorer());
      } else {
        worker.scorer = std::make_unique<FusedRankingScorer>(spec_, parameters_);
      }
    }
    tiles_ = MakeQueryTiles(queries_, RankingScorer::kQueries);
    for (const QueryTile& tile : tiles_) {
      total_scores_ += tile.size() * NumCandidates(tile.candidates);
    }
    counts_.resize(num_edges);
    const std::span<const QueryTile> tiles(tiles_);
    for (size_t begin = 0; begin < tiles.size();) {
      const size_t size = LayOutBatch(tiles.subspan(begin));
      const std::span<const QueryTile> batch = tiles.subspan(begin, size);
      WEFT_RETURN_IF_ERROR(MakeReadyQueries(batch));
      WEFT_RETURN_IF_ERROR(ScoreAnswers(batch));
      WEFT_RETURN_IF_ERROR(CountCandidates(batch));
      for (const QueryTile& tile : batch) Collect(tile);
      begin += size;
    }
    return std::move(counts_);
  }

 private:
  // A tile's place in the batch at hand.
  struct TileData {
    int64_t ready = 0;            // where its ready queries begin in ready_, in floats
    std::vector<int64_t> sample;  // empty: all entities are candidates
  };

  // What one thread scores with.
  struct Worker {
    std::unique_ptr<RankingScorer> scorer;
    std::vector<float> rows;    // gathered candidates
    std::vector<float> scores;  // [kQueries, kCandidates]
    std::vector<float> known_scores;
    std::vector<int64_t> entities;

    const float* scores_of(int64_t i) const {
      return scores.data() + i * RankingScorer::kCandidates;
    }
  };

  const RankingQuery& query(int64_t i) const { return queries_.queries()[i]; }
  const TileData& data(const QueryTile& tile) const {
    return tile_data_[&tile - tiles_.data() - first_tile_];
  }
  std::span<const RankingAnswer> AnswersOf(const QueryTile& tile) const {
    const int64_t begin = query(tile.begin).answers_begin;
    return std::span(queries_.answers()).subspan(begin, query(tile.end - 1).answers_end - begin);
  }
  int64_t Dimension(const QueryTile& tile) const { return spec_.dimension(query(tile.begin).rel); }
  EntityTypeId KnownType(const RankingQuery& q) const {
    const RelationSpec& relation = spec_.relation(q.rel);
    return q.corrupted == Side::kLhs ? relation.rhs : relation.lhs;
  }
  bool Sampled(const CandidateSet& set) const {
    return options_.sampled_candidates > 0 &&
           options_.sampled_candidates < entities_.count(set.type);
  }
  int64_t NumCandidates(const CandidateSet& set) const {
    return Sampled(set) ? options_.sampled_candidates : entities_.count(set.type);
  }

  std::string Name(PartitionKey key) const {
    return absl::StrCat("entity type ", spec_.entity_types[key.entity_type].name, ", partition ",
                        key.partition);
  }
  std::string Name(EntityTypeId type, int64_t entity) const {
    const EntityPosition at = entities_.PositionOf(type, entity);
    return absl::StrCat(Name({type, at.partition}), ", row ", at.offset);
  }

  // Starts a batch with as many of `tiles` as memory allows, and returns how many.
  size_t LayOutBatch(std::span<const QueryTile> tiles) {
    first_tile_ = tiles.data() - tiles_.data();
    tile_data_.clear();
    int64_t floats = 0;
    int64_t bytes = 0;
    for (const QueryTile& tile : tiles) {
      const int64_t tile_floats = tile.size() * Dimension(tile);
      const bool sampled = Sampled(tile.candidates);
      bytes += tile_floats * static_cast<int64_t>(sizeof(float));
      bytes += sampled ? options_.sampled_candidates * static_cast<int64_t>(sizeof(int64_t)) : 0;
      if (!tile_data_.empty() && bytes > options_.query_bytes) break;
      TileData& data = tile_data_.emplace_back();
      data.ready = floats;
      floats += tile_floats;
      if (sampled) {
        data.sample = SampleCandidates(options_.seed, tile, options_.sampled_candidates,
                                       entities_.count(tile.candidates.type));
      }
    }
    ready_ = FloatBlock(1, floats);
    return tile_data_.size();
  }

  // Reads a partition; the first time, refuses one that is not finite.
  absl::StatusOr<std::shared_ptr<const FloatBlock>> Read(PartitionKey key) {
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const FloatBlock> table, tables_->Read(key));
    WEFT_CHECK(table->rows() == entities_.count(key.entity_type, key.partition));
    if (!checked_.insert(key).second) return table;
    constexpr int64_t kRowsATask = 4096;
    const int64_t tasks = (table->rows() + kRowsATask - 1) / kRowsATask;
    WEFT_RETURN_IF_ERROR(
        ParallelFor(options_.num_threads, tasks, [&](int /*worker*/, int64_t task) -> absl::Status {
          const int64_t begin = task * kRowsATask * table->cols();
          const int64_t n = std::min(kRowsATask * table->cols(), table->size() - begin);
          const int64_t bad = begin + FindNonFinite(table->data() + begin, n);
          if (bad == begin + n) return absl::OkStatus();
          return absl::DataLossError(absl::StrCat(Name(key), ": row ", bad / table->cols(),
                                                  " is not finite (coordinate ",
                                                  bad % table->cols(), " is ", table->data()[bad],
                                                  "); a model that is not finite has no ranks"));
        }));
    return table;
  }

  absl::Status MakeReadyQueries(std::span<const QueryTile> batch) {
    // Neighbouring questions of one relation and side whose entities lie in one partition.
    struct Run {
      const QueryTile* tile;
      int64_t begin;
      int64_t end;
    };
    std::map<PartitionKey, std::vector<Run>> runs;
    for (const QueryTile& tile : batch) {
      for (int64_t i = tile.begin; i < tile.end;) {
        const RankingQuery& first = query(i);
        const EntityTypeId type = KnownType(first);
        const PartitionId partition = entities_.PositionOf(type, first.known).partition;
        const int64_t partition_end = entities_.begin(type, partition + 1);
        const int64_t begin = i++;
        while (i < tile.end && query(i).rel == first.rel && query(i).corrupted == first.corrupted &&
               query(i).known < partition_end) {
          ++i;
        }
        runs[{type, partition}].push_back({&tile, begin, i});
      }
    }
    for (const auto& [key, in_partition] : runs) {
      WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const FloatBlock> table, Read(key));
      const int64_t first_entity = entities_.begin(key.entity_type, key.partition);
      const int64_t dimension = table->cols();
      WEFT_RETURN_IF_ERROR(ParallelFor(
          options_.num_threads, static_cast<int64_t>(in_partition.size()),
          [&](int worker_id, int64_t task) -> absl::Status {
            const Run& run = in_partition[task];
            float* const ready =
                ready_.data() + data(*run.tile).ready + (run.begin - run.tile->begin) * dimension;
            for (int64_t i = run.begin; i < run.end; ++i) {
              std::ranges::copy(table->row(query(i).known - first_entity),
                                ready + (i - run.begin) * dimension);
            }
            return workers_[worker_id].scorer->MakeReady(query(run.begin), run.end - run.begin,
                                                         ready);
          }));
    }
    return absl::OkStatus();
  }

  // Fills own_scores_ for the answers of the batch.
  absl::Status ScoreAnswers(std::span<const QueryTile> batch) {
    std::map<PartitionKey, std::vector<const QueryTile*>> tiles;
    for (const QueryTile& tile : batch) {
      std::set<PartitionId> partitions;
      for (const RankingAnswer& answer : AnswersOf(tile)) {
        partitions.insert(entities_.PositionOf(tile.candidates.type, answer.entity).partition);
      }
      for (const PartitionId partition : partitions) {
        tiles[{tile.candidates.type, partition}].push_back(&tile);
      }
    }
    for (const auto& [key, in_partition] : tiles) {
      WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const FloatBlock> table, Read(key));
      const int64_t begin = entities_.begin(key.entity_type, key.partition);
      const int64_t end = begin + table->rows();
      WEFT_RETURN_IF_ERROR(ParallelFor(
          options_.num_threads, static_cast<int64_t>(in_partition.size()),
          [&](int worker_id, int64_t task) -> absl::Status {
            Worker& worker = workers_[worker_id];
            const QueryTile& tile = *in_partition[task];
            std::vector<int64_t>& entities = worker.entities;
            entities.clear();
            for (const RankingAnswer& answer : AnswersOf(tile)) {
              if (answer.entity >= begin && answer.entity < end) entities.push_back(answer.entity);
            }
            std::sort(entities.begin(), entities.end());
            entities.erase(std::unique(entities.begin(), entities.end()), entities.end());
            return ScoreListed(tile, *table, begin, entities, &worker, [&](const Columns& columns) {
              for (int64_t i = 0; i < tile.size(); ++i) {
                tally_.TakeOwnScores(tile.begin + i, columns, worker.scores_of(i));
              }
            });
          }));
    }
    return absl::OkStatus();
  }

  absl::Status CountCandidates(std::span<const QueryTile> batch) {
    std::map<EntityTypeId, std::vector<std::span<const QueryTile>>> sets_of_type;
    for (size_t begin = 0; begin < batch.size();) {
      size_t end = begin + 1;
      while (end < batch.size() && batch[end].candidates == batch[begin].candidates) ++end;
      sets_of_type[batch[begin].candidates.type].push_back(batch.subspan(begin, end - begin));
      begin = end;
    }
    for (const auto& [type, sets] : sets_of_type) {
      for (PartitionId partition = 0; partition < entities_.num_partitions(type); ++partition) {
        if (entities_.count(type, partition) == 0) continue;
        WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const FloatBlock> table, Read({type, partition}));
        const int64_t first_entity = entities_.begin(type, partition);
        for (const std::span<const QueryTile> tiles : sets) {
          WEFT_RETURN_IF_ERROR(Sampled(tiles.front().candidates)
                                   ? CountSampled(tiles, *table, first_entity)
                                   : CountAll(tiles, *table, first_entity));
        }
      }
    }
    return absl::OkStatus();
  }

  // All entities of a partition against all tiles of one candidate set.
  absl::Status CountAll(std::span<const QueryTile> tiles, const FloatBlock& table,
                        int64_t first_entity) {
    const auto num_tiles = static_cast<int64_t>(tiles.size());
    // A task is a block of candidates and a share of the tiles. It makes its candidates ready, so
    // there are only as many shares as it takes for the threads to end together.
    const int64_t blocks =
        (table.rows() + RankingScorer::kCandidates - 1) / RankingScorer::kCandidates;
    const int64_t wanted_tasks = options_.num_threads <= 1 ? 1 : 16 * options_.num_threads;
    const int64_t shares = std::clamp<int64_t>((wanted_tasks + blocks - 1) / blocks, 1, num_tiles);
    return ParallelFor(
        options_.num_threads, blocks * shares, [&](int worker_id, int64_t task) -> absl::Status {
          Worker& worker = workers_[worker_id];
          const int64_t begin = task / shares * RankingScorer::kCandidates;
          const int64_t count = std::min(RankingScorer::kCandidates, table.rows() - begin);
          const int64_t share = task % shares;
          WEFT_RETURN_IF_ERROR(worker.scorer->SetCandidates(query(tiles.front().begin), count,
                                                            table.row(begin).data()));
          const Columns columns = Columns::Range(first_entity + begin, count);
          for (int64_t t = num_tiles * share / shares; t < num_tiles * (share + 1) / shares; ++t) {
            WEFT_RETURN_IF_ERROR(Score(tiles[t], columns, &worker));
            Count(tiles[t], columns, worker_id);
          }
          return absl::OkStatus();
        });
  }

  // The sampled entities of a partition, each tile against its own.
  absl::Status CountSampled(std::span<const QueryTile> tiles, const FloatBlock& table,
                            int64_t first_entity) {
    return ParallelFor(options_.num_threads, static_cast<int64_t>(tiles.size()),
                       [&](int worker_id, int64_t task) -> absl::Status {
                         const QueryTile& tile = tiles[task];
                         const std::span<const int64_t> listed =
                             Within(data(tile).sample, first_entity, first_entity + table.rows());
                         return ScoreListed(
                             tile, table, first_entity, listed, &workers_[worker_id],
                             [&](const Columns& columns) { Count(tile, columns, worker_id); });
                       });
  }

  // Scores a tile's questions against the worker's candidates.
  absl::Status Score(const QueryTile& tile, const Columns& columns, Worker* worker) const {
    worker->scores.resize(RankingScorer::kQueries * RankingScorer::kCandidates);
    WEFT_RETURN_IF_ERROR(
        worker->scorer->Score(std::span(queries_.queries()).subspan(tile.begin, tile.size()),
                              ready_.data() + data(tile).ready, worker->scores.data()));
    for (int64_t i = 0; i < tile.size(); ++i) {
      const float* const scores = worker->scores_of(i);
      const int64_t bad = FindNonFinite(scores, columns.count());
      if (bad == columns.count()) continue;
      const RankingQuery& q = query(tile.begin + i);
      return absl::DataLossError(
          absl::StrCat("relation ", q.rel, ": the score of (", Name(KnownType(q), q.known),
                       ") and (", Name(q.candidates.type, columns.entity(bad)), ") is ",
                       scores[bad], "; a model whose scores are not finite has no ranks"));
    }
    return absl::OkStatus();
  }

  // Scores a tile against the listed entities (ascending, all of one partition), as many at a time
  // as fit, and calls each(columns) when the worker holds the scores of these.
  template <typename Each>
  absl::Status ScoreListed(const QueryTile& tile, const FloatBlock& table, int64_t first_entity,
                           std::span<const int64_t> listed, Worker* worker, Each each) const {
    worker->rows.resize(RankingScorer::kCandidates * table.cols());
    while (!listed.empty()) {
      const size_t n = std::min<size_t>(listed.size(), RankingScorer::kCandidates);
      float* to = worker->rows.data();
      for (const int64_t entity : listed.first(n)) {
        to = std::ranges::copy(table.row(entity - first_entity), to).out;
      }
      WEFT_RETURN_IF_ERROR(worker->scorer->SetCandidates(query(tile.begin), static_cast<int64_t>(n),
                                                         worker->rows.data()));
      const Columns columns = Columns::List(listed.first(n));
      WEFT_RETURN_IF_ERROR(Score(tile, columns, worker));
      each(columns);
      listed = listed.subspan(n);
    }
    return absl::OkStatus();
  }

  // Counts what the worker's scores say, and reports that it is done.
  void Count(const QueryTile& tile, const Columns& columns, int worker_id) {
    Worker& worker = workers_[worker_id];
    for (int64_t i = 0; i < tile.size(); ++i) {
      tally_.Count(tile.begin + i, columns, worker.scores_of(i), &worker.known_scores);
    }
    if (!options_.progress) return;
    const int64_t scored = tile.size() * columns.count();
    const int64_t done = scored_.fetch_add(scored, std::memory_order_relaxed) + scored;
    if (worker_id == 0) options_.progress(done, total_scores_);
  }

  // Hands the finished counts of a tile to its edges.
  void Collect(const QueryTile& tile) {
    const std::vector<int64_t>& sample = data(tile).sample;
    auto is_candidate = [&](int64_t entity) {
      return sample.empty() || std::ranges::binary_search(sample, entity);
    };
    const int64_t candidates = NumCandidates(tile.candidates);
    for (int64_t i = tile.begin; i < tile.end; ++i) {
      const RankingQuery& q = query(i);
      const int64_t known = std::ranges::count_if(filter_.KnownAnswers(i), is_candidate);
      for (int64_t a = q.answers_begin; a < q.answers_end; ++a) {
        const RankingAnswer& answer = queries_.answers()[a];
        const int64_t self = is_candidate(answer.entity) ? 1 : 0;
        const RankingTally::Counts& tally = tally_.counts(a);
        EdgeCounts& counts = counts_[answer.edge];
        const auto side = static_cast<int>(q.corrupted);
        counts.raw[side] = {candidates - self, tally.raw_above, tally.raw_ties};
        counts.filtered[side] = {candidates - known, tally.filtered_above, tally.filtered_ties};
      }
    }
  }

  const ModelSpec& spec_;
  const ParameterSet& parameters_;
  const EntityIndex& entities_;
  PartitionReader* const tables_;
  const RankingQueries& queries_;
  const EdgeFilter& filter_;
  const RankingOptions& options_;

  std::vector<QueryTile> tiles_;
  RankingTally tally_;
  std::vector<EdgeCounts> counts_;  // one an edge
  std::vector<Worker> workers_;
  std::set<PartitionKey> checked_;
  int64_t total_scores_ = 0;  // questions x candidates
  std::atomic<int64_t> scored_ = 0;

  // Of the batch at hand.
  int64_t first_tile_ = 0;
  std::vector<TileData> tile_data_;
  FloatBlock ready_;  // ready queries, tile after tile
};

}  // namespace

absl::StatusOr<std::vector<EdgeCounts>> RankEdges(
    const ModelSpec& spec, const ParameterSet& parameters, const EntityIndex& entities,
    PartitionReader* tables, const RankingQueries& queries, const EdgeFilter& filter,
    int64_t num_edges, const RankingOptions& options) {
  return Ranker(spec, parameters, entities, tables, queries, filter, options).Run(num_edges);
}

}  // namespace weft
