#include "cli/data_sketch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft::cli {
namespace {

using Row = std::vector<std::string>;

// In the order in which they are preferred when they divide the lines equally well.
constexpr std::array<char, 5> kDelimiters = {'\t', ',', ';', '|', ' '};
constexpr int kMaxColumns = 64;
constexpr size_t kListedRelations = 10;

// Usual column names, in small letters.
constexpr const char* kLhsWords[] = {"lhs",     "head", "h",     "source", "src",  "from",
                                     "subject", "s",    "start", "user",   "node1"};
constexpr const char* kRhsWords[] = {"rhs",    "tail", "t",   "target", "dst",   "dest",       "to",
                                     "object", "o",    "end", "item",   "node2", "destination"};
constexpr const char* kRelWords[] = {"rel",  "relation", "r",    "predicate", "p",
                                     "type", "label",    "edge", "edge_type", "property"};
constexpr const char* kWeightWords[] = {"weight", "w", "score", "rating", "count", "value"};

// The fields of a line. A field in double quotes may hold the delimiter, when `quotes`.
Row SplitLine(absl::string_view line, char delimiter, bool quotes) {
  if (!quotes || !absl::StrContains(line, '"')) return absl::StrSplit(line, delimiter);
  Row row(1);
  bool inside = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && inside && i + 1 < line.size() && line[i + 1] == '"') {
      row.back() += line[++i];
    } else if (c == '"' && (inside || row.back().empty())) {
      inside = !inside;
    } else if (c == delimiter && !inside) {
      row.emplace_back();
    } else {
      row.back() += c;
    }
  }
  return row;
}

// How the lines divide at one delimiter.
struct Division {
  char delimiter = 0;
  int columns = 0;   // of most lines
  size_t lines = 0;  // that have so many
};

// Whether fields between these may be in quotes: what spreadsheets write, in either half of the
// world.
bool MayBeQuoted(char delimiter) { return delimiter == ',' || delimiter == ';'; }

Division Divide(const std::vector<absl::string_view>& lines, char delimiter) {
  std::map<int, size_t> counts;
  for (const absl::string_view line : lines) {
    const size_t fields = SplitLine(line, delimiter, MayBeQuoted(delimiter)).size();
    ++counts[static_cast<int>(std::min<size_t>(fields, kMaxColumns + 1))];
  }
  Division best{delimiter};
  for (const auto& [columns, count] : counts) {
    if (columns >= 2 && columns <= kMaxColumns && count > best.lines) {
      best.columns = columns;
      best.lines = count;
    }
  }
  return best;
}

bool IsNumber(const std::string& text) {
  double value;
  return absl::SimpleAtod(text, &value);
}

bool IsInteger(const std::string& text) {
  int64_t value;
  return absl::SimpleAtoi(text, &value);
}

// What is known about one column from its values below a header.
struct Column {
  absl::flat_hash_set<absl::string_view> values;
  bool numbers = true;
  bool integers = true;
  double largest = 0;  // of the numbers
};

Column Describe(const std::vector<Row>& rows, size_t first, int column) {
  Column result;
  for (size_t i = first; i < rows.size(); ++i) {
    const std::string& value = rows[i][column];
    if (!result.values.insert(value).second) continue;
    double number = 0;
    if (result.integers && !IsInteger(value)) result.integers = false;
    if (result.numbers && !absl::SimpleAtod(value, &number)) result.numbers = false;
    result.largest = std::max(result.largest, std::abs(number));
  }
  return result;
}

// The share of values that both have, of those that either has (Jaccard's index).
double Overlap(const Column& a, const Column& b) {
  const bool a_smaller = a.values.size() < b.values.size();
  const Column& smaller = a_smaller ? a : b;
  const Column& larger = a_smaller ? b : a;
  const auto both = absl::c_count_if(
      smaller.values, [&](absl::string_view value) { return larger.values.contains(value); });
  const double either = static_cast<double>(a.values.size() + b.values.size()) - both;
  return either == 0 ? 0 : static_cast<double>(both) / either;
}

// Less is chance: ids of relations among ids of entities, say.
constexpr double kSameNames = 0.05;

class Sketcher {
 public:
  absl::StatusOr<DataSketch> Run(absl::string_view text, bool whole) {
    std::vector<absl::string_view> lines = Lines(text, whole);
    if (lines.empty()) return absl::InvalidArgumentError("has no lines");
    if (absl::Status status = ChooseDelimiter(lines); !status.ok()) return status;
    for (int c = 0; c < sketch_.num_columns; ++c) columns_.push_back(Describe(rows_, 1, c));
    const bool named = HasNamedHeader();
    ChooseColumns(named);
    FindHeader(named);
    Count();
    return sketch_;
  }

 private:
  static std::vector<absl::string_view> Lines(absl::string_view text, bool whole) {
    if (absl::StartsWith(text, "\xEF\xBB\xBF")) text.remove_prefix(3);
    if (!whole) text = text.substr(0, text.rfind('\n') + 1);  // npos + 1 == 0: nothing is left
    std::vector<absl::string_view> lines;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }

  absl::Status ChooseDelimiter(const std::vector<absl::string_view>& lines) {
    Division best;
    for (const char delimiter : kDelimiters) {
      const Division division = Divide(lines, delimiter);
      if (division.lines > best.lines) best = division;
    }
    if (best.lines == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tab, comma, semicolon, bar and space all leave one column, as in: ",
                       lines.front().substr(0, 80)));
    }
    sketch_.delimiter = best.delimiter;
    sketch_.quoted = MayBeQuoted(best.delimiter);
    sketch_.num_columns = best.columns;
    for (const absl::string_view line : lines) {
      Row row = SplitLine(line, best.delimiter, sketch_.quoted);
      if (static_cast<int>(row.size()) == best.columns) rows_.push_back(std::move(row));
    }
    Say(absl::StrCat("Fields are separated by ", DelimiterName(best.delimiter), ": ", best.lines,
                     " of ", lines.size(), " lines have ", best.columns, " fields."));
    return absl::OkStatus();
  }

  // Whether line 1 has usual names of columns, two or more, which are no values of theirs too.
  bool HasNamedHeader() {
    int found = 0;
    const auto find = [&](const auto& words, int* column) {
      for (int c = 0; c < sketch_.num_columns && *column < 0; ++c) {
        const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(rows_[0][c]));
        if (absl::c_any_of(words, [&](const char* word) { return name == word; }) &&
            !FirstRecurs(c)) {
          *column = c;
          ++found;
        }
      }
    };
    find(kLhsWords, &named_lhs_);
    find(kRhsWords, &named_rhs_);
    find(kRelWords, &named_rel_);
    find(kWeightWords, &named_weight_);
    return found >= 2;
  }

  // Whether the value of line 1 in the column stands in another line too.
  bool FirstRecurs(int column) const {
    return std::any_of(rows_.begin() + 1, rows_.end(),
                       [&](const Row& row) { return row[column] == rows_[0][column]; });
  }

  void ChooseColumns(bool by_name) {
    const int n = sketch_.num_columns;
    std::vector<int> rest;  // the columns without a role yet
    const auto take = [&](int named, int* column) {
      if (by_name && named >= 0) *column = named;
    };
    int lhs = -1, rhs = -1;
    take(named_lhs_, &lhs);
    take(named_rhs_, &rhs);
    take(named_rel_, &sketch_.rel_column);
    take(named_weight_, &sketch_.weight_column);
    for (int c = 0; c < n; ++c) {
      if (c != lhs && c != rhs && c != sketch_.rel_column && c != sketch_.weight_column) {
        rest.push_back(c);
      }
    }
    if (!by_name) {
      ChooseWeight(&rest);
      ChooseRelation(&rest);
    } else if (sketch_.rel_column < 0) {
      // A column between two whose names are known: the relation, unless it holds numbers.
      const size_t sides = (lhs < 0 ? 1 : 0) + (rhs < 0 ? 1 : 0);
      const auto words = absl::c_find_if(rest, [&](int c) { return !columns_[c].numbers; });
      if (rest.size() > sides && words != rest.end()) {
        sketch_.rel_column = *words;
        rest.erase(words);
      }
    }
    for (int* const column : {&lhs, &rhs}) {
      if (*column < 0 && !rest.empty()) {
        *column = rest.front();
        rest.erase(rest.begin());
      }
    }
    sketch_.lhs_column = lhs;
    sketch_.rhs_column = rhs;
    if (by_name) {
      Say(absl::StrCat("Line 1 names the columns: ", absl::StrJoin(rows_[0], ", "), "."));
    }
    if (!rest.empty()) {
      Say(absl::StrCat(rest.size() == 1 ? "Column " : "Columns ", absl::StrJoin(rest, ", "),
                       rest.size() == 1 ? " is" : " are", " not used."));
    }
  }

  // The last column of three or more, when it holds numbers that are no ids.
  void ChooseWeight(std::vector<int>* rest) {
    const int last = sketch_.num_columns - 1;
    const Column& column = columns_[last];
    if (last < 2 || rows_.size() < 2 || !column.numbers) return;
    if (column.integers) {
      // Whole numbers may be ids or times as well.
      constexpr double kLargestCount = 1e6;
      bool other_names = last >= 3;
      for (int c = 0; c < last; ++c) {
        if (Overlap(columns_[c], column) >= kSameNames) return;
        other_names = other_names || !columns_[c].integers;
      }
      if (!other_names || column.largest > kLargestCount) return;
    }
    sketch_.weight_column = last;
    rest->erase(std::find(rest->begin(), rest->end(), last));
    Say(absl::StrCat("Column ", last, " holds numbers that are no ids: weights."));
  }

  // Of three or more columns the one whose values are not those of two others that share theirs;
  // when none share, the one with the fewest different values.
  void ChooseRelation(std::vector<int>* rest) {
    if (rest->size() < 3) return;
    double most = 0;
    size_t chosen = 1;
    for (const size_t candidate : {1, 2, 0}) {
      const std::array<size_t, 2> sides = {candidate == 0 ? 1u : 0u, candidate == 2 ? 1u : 2u};
      const double overlap = Overlap(columns_[(*rest)[sides[0]]], columns_[(*rest)[sides[1]]]);
      if (overlap > most) {
        most = overlap;
        chosen = candidate;
      }
    }
    std::string why = "the others have names in common";
    if (most < kSameNames) {
      chosen = 1;
      for (const size_t candidate : {2, 0}) {
        if (NumValues((*rest)[candidate]) < NumValues((*rest)[chosen])) chosen = candidate;
      }
      why = "it has the fewest different values";
    }
    sketch_.rel_column = (*rest)[chosen];
    rest->erase(rest->begin() + static_cast<std::ptrdiff_t>(chosen));
    Say(absl::StrCat("Column ", sketch_.rel_column, " holds relations: ", why, "."));
  }

  size_t NumValues(int column) const { return columns_[column].values.size(); }

  void FindHeader(bool named) {
    const Row& first = rows_[0];
    constexpr size_t kEnoughRows = 20;
    if (named) {
      sketch_.has_header = true;
    } else if (sketch_.weight_column >= 0 && !IsNumber(first[sketch_.weight_column])) {
      sketch_.has_header = true;
      Say("Line 1 is a header: it has no number where the others have one.");
    } else if (sketch_.rel_column >= 0 && rows_.size() > kEnoughRows &&
               NumValues(sketch_.rel_column) * 4 < rows_.size() &&
               !FirstRecurs(sketch_.rel_column) && !FirstRecurs(sketch_.lhs_column) &&
               !FirstRecurs(sketch_.rhs_column)) {
      sketch_.has_header = true;
      Say("Line 1 is a header: none of its names appears again.");
    }
    if (sketch_.has_header) {
      sketch_.header = first;
      rows_.erase(rows_.begin());
    }
  }

  void Count() {
    absl::flat_hash_set<absl::string_view> lhs, rhs;
    absl::flat_hash_map<absl::string_view, int64_t> relations;
    for (const Row& row : rows_) {
      lhs.insert(row[sketch_.lhs_column]);
      rhs.insert(row[sketch_.rhs_column]);
      if (sketch_.rel_column >= 0) ++relations[row[sketch_.rel_column]];
    }
    sketch_.num_edges = static_cast<int64_t>(rows_.size());
    sketch_.num_lhs_names = static_cast<int64_t>(lhs.size());
    sketch_.num_rhs_names = static_cast<int64_t>(rhs.size());
    lhs.insert(rhs.begin(), rhs.end());
    sketch_.num_names = static_cast<int64_t>(lhs.size());
    sketch_.num_relations = static_cast<int64_t>(relations.size());
    std::vector<std::pair<int64_t, std::string>> by_count;
    for (const auto& [name, count] : relations) by_count.emplace_back(-count, std::string(name));
    std::sort(by_count.begin(), by_count.end());
    for (size_t i = 0; i < std::min(by_count.size(), kListedRelations); ++i) {
      sketch_.relations.push_back(by_count[i].second);
    }
  }

  void Say(std::string reason) { sketch_.reasons.push_back(std::move(reason)); }

  DataSketch sketch_;
  std::vector<Row> rows_;        // the lines that have the usual number of fields
  std::vector<Column> columns_;  // without the first line, which may be a header
  int named_lhs_ = -1;
  int named_rhs_ = -1;
  int named_rel_ = -1;
  int named_weight_ = -1;
};

}  // namespace

absl::StatusOr<DataSketch> SketchData(absl::string_view text, bool whole) {
  return Sketcher().Run(text, whole);
}

std::string DelimiterName(char delimiter) {
  switch (delimiter) {
    case '\t':
      return "tab";
    case ',':
      return "comma";
    case ' ':
      return "space";
    case ';':
      return "semicolon";
    default:
      return absl::StrCat("'", std::string(1, delimiter), "'");
  }
}

}  // namespace weft::cli
