#include "graph/edge_codec.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"

namespace weft {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr int64_t kWordBytes = 4;
// What a list with features has.
constexpr uint32_t kWeights = 1;
constexpr uint32_t FeaturesOf(Side side) { return 2u << static_cast<int>(side); }

int64_t BytesOf(const FeatureBags& bags) {
  if (bags.empty()) return 0;
  return kWordBytes * (bags.size() + static_cast<int64_t>(bags.features.size()));
}

class Output {
 public:
  explicit Output(char* at) : at_(at) {}

  template <typename Value>
  void Put(const Value& value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  void Put(const FeatureBags& bags) {
    for (int64_t i = 0; i < bags.size(); ++i) Put(static_cast<int32_t>(bags[i].size()));
    if (bags.features.empty()) return;
    std::memcpy(at_, bags.features.data(), bags.features.size() * kWordBytes);
    at_ += bags.features.size() * kWordBytes;
  }

 private:
  char* at_;
};

// Takes bags from the front of `words`; false when it is too short.
bool TakeBags(int64_t num_bags, absl::string_view* words, FeatureBags* bags) {
  const auto left = [&] { return static_cast<int64_t>(words->size()) / kWordBytes; };
  if (left() < num_bags) return false;
  bags->offsets.push_back(0);
  for (int64_t i = 0; i < num_bags; ++i) {
    int32_t count = 0;
    std::memcpy(&count, words->data() + i * kWordBytes, sizeof count);
    if (count < 0) return false;
    bags->offsets.push_back(bags->offsets.back() + count);
  }
  words->remove_prefix(static_cast<size_t>(num_bags * kWordBytes));
  const int64_t num_features = bags->offsets.back();
  if (left() < num_features) return false;
  bags->features.resize(static_cast<size_t>(num_features));
  if (num_features == 0) return true;
  std::memcpy(bags->features.data(), words->data(), static_cast<size_t>(num_features * kWordBytes));
  words->remove_prefix(static_cast<size_t>(num_features * kWordBytes));
  return true;
}

// Takes what follows the edges off the end of `bytes`, and tells whether they have weights; false
// when it does not fit.
bool TakeFeatures(int64_t num_edges, absl::string_view* bytes, bool* weighted, EdgeList* edges) {
  if (static_cast<int64_t>(bytes->size()) < kWordBytes) return false;
  uint32_t has = 0;
  std::memcpy(&has, bytes->data() + bytes->size() - kWordBytes, sizeof has);
  bytes->remove_suffix(kWordBytes);
  const uint32_t features = FeaturesOf(Side::kLhs) | FeaturesOf(Side::kRhs);
  if ((has & features) == 0 || (has & ~(features | kWeights)) != 0) return false;
  *weighted = (has & kWeights) != 0;
  const auto fixed = static_cast<size_t>(num_edges * EdgeBytes(*weighted));
  if (bytes->size() < fixed) return false;
  absl::string_view rest = bytes->substr(fixed);
  for (const Side side : kSides) {
    if ((has & FeaturesOf(side)) == 0) continue;
    if (!TakeBags(num_edges, &rest, &edges->features[static_cast<int>(side)])) return false;
  }
  *bytes = bytes->substr(0, fixed);
  return rest.empty();
}

}  // namespace

std::string EncodeEdges(const EdgeList& edges) {
  int64_t size = edges.size() * EdgeBytes(edges.weighted());
  if (edges.featurized()) {
    size += BytesOf(edges.features[0]) + BytesOf(edges.features[1]) + kWordBytes;
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  Output out(bytes.data());
  for (size_t i = 0; i < edges.lhs.size(); ++i) {
    out.Put(edges.lhs[i]);
    out.Put(edges.rhs[i]);
    out.Put(edges.rel[i]);
    if (edges.weighted()) out.Put(edges.weight[i]);
  }
  if (!edges.featurized()) return bytes;
  uint32_t has = edges.weighted() ? kWeights : 0;
  for (const Side side : kSides) {
    const FeatureBags& bags = edges.features[static_cast<int>(side)];
    if (bags.empty()) continue;
    WEFT_CHECK(bags.size() == edges.size());
    has |= FeaturesOf(side);
    out.Put(bags);
  }
  out.Put(has);
  return bytes;
}

absl::StatusOr<EdgeList> DecodeEdges(absl::string_view bytes, int64_t num_edges, bool featurized) {
  const auto size = static_cast<int64_t>(bytes.size());
  bool weighted = num_edges > 0 && size / num_edges == EdgeBytes(true);
  EdgeList edges;
  const bool fits = num_edges >= 0 && num_edges <= size &&
                    (!featurized || TakeFeatures(num_edges, &bytes, &weighted, &edges)) &&
                    static_cast<int64_t>(bytes.size()) == num_edges * EdgeBytes(weighted);
  if (!fits) {
    return absl::DataLossError(absl::StrCat(size, " bytes are not ", num_edges, " edges"));
  }
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
