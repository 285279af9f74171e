#include "graph/edge_codec.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace weft {

static_assert(std::endian::native == std::endian::little);

std::string EncodeEdges(const EdgeList& edges) {
  std::string bytes(static_cast<size_t>(edges.size() * EdgeBytes(edges.weighted())), '\0');
  char* out = bytes.data();
  const auto put = [&out](const auto& value) {
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
  };
  for (size_t i = 0; i < edges.lhs.size(); ++i) {
    put(edges.lhs[i]);
    put(edges.rhs[i]);
    put(edges.rel[i]);
    if (edges.weighted()) put(edges.weight[i]);
  }
  return bytes;
}

absl::StatusOr<EdgeList> DecodeEdges(absl::string_view bytes, int64_t num_edges) {
  const auto size = static_cast<int64_t>(bytes.size());
  const bool weighted = num_edges > 0 && size / num_edges == EdgeBytes(true);
  if (num_edges < 0 || size % EdgeBytes(weighted) != 0 || size / EdgeBytes(weighted) != num_edges) {
    return absl::DataLossError(absl::StrCat(size, " bytes are not ", num_edges, " edges"));
  }
  EdgeList edges;
  const auto count = static_cast<size_t>(num_edges);
  edges.lhs.resize(count);
  edges.rhs.resize(count);
  edges.rel.resize(count);
  if (weighted) edges.weight.resize(count);
  const char* in = bytes.data();
  const auto take = [&in](auto* value) {
    std::memcpy(value, in, sizeof *value);
    in += sizeof *value;
  };
  for (size_t i = 0; i < count; ++i) {
    take(&edges.lhs[i]);
    take(&edges.rhs[i]);
    take(&edges.rel[i]);
    if (weighted) take(&edges.weight[i]);
  }
  return edges;
}

}  // namespace weft
