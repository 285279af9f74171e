// DataSketch is what the first lines of a file of edges show: how they are divided, which column is
// what, and how many names there are.
//
// A guess, made to be told to somebody who can correct it; every conclusion comes with its reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::cli {

struct DataSketch {
  static constexpr int kNoColumn = -1;

  char delimiter = '\t';
  bool quoted = false;  // fields may be in quotes, as spreadsheets write them
  int num_columns = 0;
  bool has_header = false;
  int lhs_column = 0;
  int rhs_column = 1;
  int rel_column = kNoColumn;
  int weight_column = kNoColumn;

  // Of the lines that were looked at, without the header.
  int64_t num_edges = 0;
  int64_t num_lhs_names = 0;
  int64_t num_rhs_names = 0;
  int64_t num_names = 0;  // of both sides together
  int64_t num_relations = 0;
  std::vector<std::string> relations;  // the most frequent ones first, at most ten
  std::vector<std::string> header;     // the names of the columns, when there is one

  std::vector<std::string> reasons;  // whole sentences

  // Both sides have names, none of them in common.
  bool bipartite() const { return num_names > 0 && num_names == num_lhs_names + num_rhs_names; }
};

// `text`: the beginning of the data, or all of it (`whole`; otherwise the last line is left out, as
// it may be cut). Lines with another number of fields than most are left out.
// Errors: InvalidArgument when there are no lines, or no delimiter gives two columns.
absl::StatusOr<DataSketch> SketchData(absl::string_view text, bool whole);

// "tab", "comma", "space", "'|'".
std::string DelimiterName(char delimiter);

}  // namespace weft::cli
