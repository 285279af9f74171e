// LineParser cuts lines into the fields of an edge: TSV (or any other single delimiter), or CSV
// with quotes after RFC 4180.
//
// Fields are views into the block; only quoted fields that contain doubled quotes are copied. Blank
// lines are skipped and counted. A line that cannot be used becomes a BadLine and the rest goes on:
// too few fields, an empty field, text that is not UTF-8, a NUL byte, a line that is too long, a
// quoted field that does not end on its line. Fields beyond the ones asked for are ignored.
//
// Thread-safety: Parse is const; blocks may be parsed in parallel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"
#include "graph/import/line_reader.h"

namespace weft {

// The columns of an edge, in the order of ParsedLines::fields.
enum class EdgeField { kLhs = 0, kRhs = 1, kRel = 2, kWeight = 3 };
inline constexpr int kNumEdgeFields = 4;
absl::string_view EdgeFieldName(EdgeField field);

struct LineFormat {
  static constexpr int kNoColumn = -1;

  char delimiter = '\t';
  bool quotes = false;  // CSV
  // Counted from 0; relation and weight may be kNoColumn.
  std::array<int, kNumEdgeFields> columns = {0, 1, kNoColumn, kNoColumn};
  size_t max_line_bytes = LineReader::Options().max_line_bytes;

  int column(EdgeField field) const { return columns[static_cast<int>(field)]; }
};

struct BadLine {
  int64_t line;  // counted from 0 within the block
  std::string reason;
  std::string_view text;      // lives as long as the block
  bool maybe_header = false;  // a first line of this kind may be column names
};

// The lines of one block, by column: fields[f][i] is field f of the i-th good line. Columns that
// are not asked for stay empty.
struct ParsedLines {
  size_t size() const { return line.size(); }
  void Clear();
  // Puts good line `from` in the place of `to`; drops the good lines from `size` on.
  void Move(size_t from, size_t to);
  void Truncate(size_t size);

  std::array<std::vector<std::string_view>, kNumEdgeFields> fields;
  std::vector<uint32_t> line;        // counted from 0 within the block
  std::vector<uint32_t> begin;       // of the line, in bytes within the block
  std::vector<BadLine> bad;          // in order of line
  std::deque<std::string> unquoted;  // fields that had to be copied
  int64_t num_lines = 0;
  int64_t num_blank = 0;
};

class LineParser {
 public:
  explicit LineParser(const LineFormat& format);

  // `skip_first`: the block begins with a header line.
  void Parse(const LineBlock& block, bool skip_first, ParsedLines* out) const;

  // The line that begins at byte `begin` of the block, without its end.
  static std::string_view LineAt(const LineBlock& block, size_t begin);

 private:
  class Splitter;

  const LineFormat format_;
  int num_columns_;  // the highest column asked for, and one
};

}  // namespace weft
