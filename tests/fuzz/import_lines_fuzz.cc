// Files of edges. The first three bytes choose the format, the size of blocks and the limit of
// lines; the rest is the file. Whatever the bytes: every line is an edge, blank or bad; what is
// accepted is text; and where blocks are cut changes nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/import/edge_parser.h"
#include "graph/import/line_reader.h"
#include "graph/import/utf8.h"
#include "services/common/check.h"

namespace weft {
namespace {

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    const size_t n = std::min(capacity, bytes_.size());
    if (n > 0) std::memcpy(out, bytes_.data(), n);
    bytes_.remove_prefix(n);
    return n;
  }
  InputDigest digest() const override { return {}; }
  int64_t total_bytes() const override { return 0; }

 private:
  std::string_view bytes_;
};

struct Outcome {
  std::vector<std::tuple<std::string, std::string, int, float, uint64_t>> edges;
  std::vector<int64_t> bad_lines;
  int64_t num_lines = 0;
  int64_t num_blank = 0;
  int64_t num_skipped = 0;
  bool operator==(const Outcome&) const = default;
};

DatasetSchema Schema() {
  DatasetSchema schema;
  schema.entities = {{"user", 1}, {"item", 1}};
  schema.relations = {{"r", 0, 1}, {"s", 1, 1}};
  return schema;
}

Outcome Parse(std::string_view bytes, const EdgeParser::Options& options,
              const LineReader::Options& reader_options) {
  static const DatasetSchema schema = Schema();
  static const EntityDictionary relations = RelationDictionary(schema);
  LineReader reader(std::make_unique<MemorySource>(bytes), reader_options);
  EdgeParser parser(options, schema, relations);
  Outcome outcome;
  EdgeBlock edges;
  edges.first = true;
  while (*reader.Read(&edges.block)) {
    parser.Parse(&edges);
    int64_t last_bad = -1;
    for (const BadLine& bad : edges.lines.bad) {
      WEFT_CHECK(bad.line > last_bad && bad.line < edges.lines.num_lines && !bad.reason.empty());
      last_bad = bad.line;
      outcome.bad_lines.push_back(outcome.num_lines + bad.line);
    }
    for (size_t i = 0; i < edges.size(); ++i) {
      for (const auto& field : edges.lines.fields) {
        if (field.empty()) continue;
        WEFT_CHECK(!field[i].empty() && FindInvalidUtf8(field[i]) == kWholeText);
        WEFT_CHECK(field[i].find('\0') == std::string_view::npos);
      }
      const auto& fields = edges.lines.fields;
      outcome.edges.emplace_back(fields[0][i], fields[1][i], edges.relation(i),
                                 edges.weight.empty() ? 1.0f : edges.weight[i], edges.lhs_hash[i]);
    }
    outcome.num_lines += edges.lines.num_lines;
    outcome.num_blank += edges.lines.num_blank;
    if (options.skip_unknown_relations) outcome.num_skipped += edges.unknown_relations;
    outcome.num_skipped += edges.first && options.skip_header ? 1 : 0;
    edges.first = false;
  }
  WEFT_CHECK(outcome.num_lines ==
             static_cast<int64_t>(outcome.edges.size() + outcome.bad_lines.size()) +
                 outcome.num_blank + outcome.num_skipped);
  return outcome;
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weft::EdgeParser;
  using weft::LineReader;
  if (size < 3) return 0;
  EdgeParser::Options options;
  options.format.quotes = (data[0] & 1) != 0;
  options.format.delimiter = options.format.quotes ? ',' : '\t';
  options.format.columns = {0, (data[0] & 2) != 0 ? 2 : 1, -1, -1};
  if ((data[0] & 4) != 0) options.format.columns[2] = 3 - options.format.columns[1];
  if ((data[0] & 8) != 0) options.format.columns[3] = 3;
  options.skip_header = (data[0] & 16) != 0;
  options.skip_unknown_relations = (data[0] & 32) != 0;
  const size_t max_line_bytes = 1 + data[2];
  options.format.max_line_bytes = max_line_bytes;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 3, size - 3);

  const weft::Outcome small = weft::Parse(bytes, options, {size_t{1} + data[1], max_line_bytes});
  const weft::Outcome large = weft::Parse(bytes, options, {size_t{1} << 16, max_line_bytes});
  WEFT_CHECK(small == large);
  return 0;
}
