// What trainers and parameter servers say to each other, as plain structs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/common/cluster_types.h"

namespace weft {

// No message is larger, so that one message is one push, applied whole or not at all.
inline constexpr size_t kMaxParamMessageBytes = size_t{3} << 20;

// Who asks, and in which life of the run.
struct ParamCaller {
  RunContext context;
  Incarnation incarnation = 0;  // of the trainer's session

  bool operator==(const ParamCaller&) const = default;
};

// Up to where a trainer knows a server's rows: all versions <= counter of that server incarnation.
struct ParamCursor {
  Incarnation incarnation = 0;  // 0: nothing is known
  uint64_t counter = 0;

  bool operator==(const ParamCursor&) const = default;
};

// Rows first, first + 1, ... of a tensor.
struct RowRun {
  uint32_t tensor = 0;
  uint32_t first = 0;
  uint32_t count = 0;

  bool operator==(const RowRun&) const = default;
};

// Rows of several tensors: `values` has the floats of all runs, one after the other.
struct RowBatch {
  std::vector<RowRun> runs;
  std::vector<float> values;

  static constexpr size_t kRunBytes = 16;  // of a run in a message, at most
  size_t Bytes() const { return runs.size() * kRunBytes + values.size() * sizeof(float); }
  // What one more row of `floats` may add.
  static size_t RowBytes(int64_t floats) {
    return kRunBytes + static_cast<size_t>(floats) * sizeof(float);
  }
  bool empty() const { return runs.empty(); }
  // Appends the name of a row; its floats go to the end of `values`.
  void AddRow(uint32_t tensor, int64_t row) {
    if (!runs.empty() && runs.back().tensor == tensor &&
        int64_t{runs.back().first} + runs.back().count == row) {
      ++runs.back().count;
    } else {
      runs.push_back({tensor, static_cast<uint32_t>(row), 1});
    }
  }
  bool operator==(const RowBatch&) const = default;
};

// A full pull, in pages. The first makes the incarnation known to the server.
struct JoinRequest {
  ParamCaller caller;
  uint64_t layout_hash = 0;
  // The first sequence number this trainer will use: larger than all it has used. What is still on
  // the way of lower ones has no effect any more.
  uint64_t first_number = 1;
  uint64_t page = 0;   // 0, then the answer's `next_page`
  ParamCursor cursor;  // page > 0: the answers' cursor
};

struct JoinPage {
  RowBatch rows;
  ParamCursor cursor;         // what was asked for up to here is the state of this cursor or newer
  uint64_t next_page = 0;     // 0: this was the last
  uint64_t first_number = 1;  // the number that the next push must have
  int64_t steps = 0;
};

struct PushRequest {
  ParamCaller caller;
  uint64_t number = 0;  // 1, 2, ...: of this incarnation's pushes to this server
  int64_t pass = 0;     // in which the rows were trained
  RowBatch rows;        // differences
  int64_t steps = 0;    // difference of the optimizer's step count
  ParamCursor cursor;
  bool sync = false;  // durable on the server's disk before the answer: this push and all before
};

struct PushAnswer {
  bool applied = false;  // false: a repeat
  RowBatch rows;         // newer than the request's cursor, in version order
  ParamCursor cursor;    // up to where `rows` go
  bool more = false;     // there are newer rows; they did not fit
  int64_t steps = 0;     // the server's
  // Pushes that the server had acknowledged, but lost when its machine failed.
  uint64_t lost_pushes = 0;
};

}  // namespace weft
