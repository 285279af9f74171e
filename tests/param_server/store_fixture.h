// A RowBlockStore of two small tensors, and short ways to ask it.
//
//   tensor 0: "t" [4, 2]    tensor 1: "t/sums" [4, 1]
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/common/check.h"
#include "services/param_server/memory_push_log.h"
#include "services/param_server/row_block_store.h"

namespace weft::testing {

struct TestRow {
  uint32_t tensor = 0;
  int64_t row = 0;
  std::vector<float> floats;
  bool operator==(const TestRow&) const = default;
};

inline RowBatch Batch(const std::vector<TestRow>& rows) {
  RowBatch batch;
  for (const TestRow& r : rows) {
    batch.AddRow(r.tensor, r.row);
    batch.values.insert(batch.values.end(), r.floats.begin(), r.floats.end());
  }
  return batch;
}

inline std::vector<TestRow> Rows(const RowBatch& batch, const SharedLayout& layout) {
  std::vector<TestRow> rows;
  auto at = batch.values.begin();
  for (const RowRun& run : batch.runs) {
    for (uint32_t i = 0; i < run.count; ++i) {
      const int64_t row = int64_t{run.first} + i;
      const auto end = at + layout.tensor(run.tensor).RowFloats(row);
      rows.push_back({run.tensor, row, {at, end}});
      at = end;
    }
  }
  EXPECT_EQ(at, batch.values.end());
  return rows;
}

inline SharedLayout TestLayout() {
  return *SharedLayout::Make({MakeSharedTensor("t", 4, 2), MakeSharedTensor("t/sums", 4, 1)});
}

class StoreFixture {
 public:
  explicit StoreFixture(PushLog* log, uint64_t incarnation = 100,
                        size_t max_bytes = kMaxParamMessageBytes) {
    auto opened = RowBlockStore::Open({incarnation, max_bytes}, log);
    WEFT_CHECK(opened.ok());
    store = *std::move(opened);
  }

  RowBlockStore::Share Share(uint64_t generation = 1) const {
    return {"run", generation, TestLayout(), 0, 1};
  }
  absl::Status Install(uint64_t generation, float value, int64_t first_open_pass = 0) {
    return store->Install(Share(generation), first_open_pass,
                          [value](RowTable* table) -> absl::StatusOr<int64_t> {
                            for (int64_t i = 0; i < table->num_rows(); ++i) {
                              for (float& f : table->values(i)) f = value;
                            }
                            return 0;
                          });
  }
  void InstallZeros() { WEFT_CHECK(Install(1, 0).ok()); }

  ParamCaller Caller(uint64_t incarnation) const {
    return {{"run", 1, 0, generation}, incarnation};
  }

  absl::StatusOr<JoinPage> JoinPageOf(uint64_t incarnation, uint64_t page = 0, ParamCursor at = {},
                                      uint64_t first_number = 1) {
    return store->Join({Caller(incarnation), TestLayout().hash(), first_number, page, at});
  }
  // Remembers the cursor.
  JoinPage Join(uint64_t incarnation) {
    auto page = JoinPageOf(incarnation);
    WEFT_CHECK(page.ok());
    cursors[incarnation] = page->cursor;
    return *std::move(page);
  }

  PushRequest Request(uint64_t incarnation, uint64_t number, const std::vector<TestRow>& rows) {
    PushRequest request;
    request.caller = Caller(incarnation);
    request.number = number;
    request.rows = Batch(rows);
    request.cursor = cursors[incarnation];
    return request;
  }
  // With the remembered cursor, and remembers the answer's.
  absl::StatusOr<PushAnswer> Push(uint64_t incarnation, uint64_t number,
                                  const std::vector<TestRow>& rows) {
    auto answer = store->Push(Request(incarnation, number, rows));
    if (answer.ok()) cursors[incarnation] = answer->cursor;
    return answer;
  }

  // As somebody who joins now would see it.
  std::vector<float> Row(uint32_t tensor, int64_t row) {
    auto snapshot = store->Snapshot(store->share()->generation, std::nullopt);
    WEFT_CHECK(snapshot.ok());
    RowTable table((*snapshot)->layout, (*snapshot)->ranges);
    SnapshotRestore restore(&table);
    WEFT_CHECK(restore.Add(**snapshot).ok());
    const auto floats = table.values(table.Find(tensor, row));
    return {floats.begin(), floats.end()};
  }

  int64_t Refused(ParamRefusal why) const {
    return store->stats().refused[static_cast<size_t>(why)];
  }

  uint64_t generation = 1;
  std::unique_ptr<RowBlockStore> store;
  std::map<uint64_t, ParamCursor> cursors;
};

}  // namespace weft::testing
