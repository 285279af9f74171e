#include "cli/entity_names.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/common/nearest_key.h"
#include "services/common/status_macros.h"

namespace weft::cli {
namespace {

// How far a name is from what was asked for; smaller is nearer.
struct Distance {
  enum Kind { kBeginsWith, kHolds, kDiffers };
  Kind kind = kDiffers;
  int difference = 0;  // letters
  auto operator<=>(const Distance&) const = default;
};

// The nearest of the names that were offered.
class NearestNames {
 public:
  NearestNames(const std::string& wanted, int count)
      : wanted_(absl::AsciiStrToLower(wanted)), count_(static_cast<size_t>(count)) {}

  void Offer(const std::string& name) {
    Distance distance = AtLeast(name);
    const bool full = heap_.size() == count_;
    if (full && distance > heap_.front().first) return;
    if (distance.kind == Distance::kDiffers) distance.difference = EditDistance(wanted_, name);
    std::pair<Distance, std::string> entry(distance, name);
    if (full && entry >= heap_.front()) return;
    if (full) {
      std::ranges::pop_heap(heap_);
      heap_.pop_back();
    }
    heap_.push_back(std::move(entry));
    std::ranges::push_heap(heap_);
  }

  std::vector<std::string> Take() {
    std::ranges::sort(heap_);
    std::vector<std::string> names;
    for (auto& [distance, name] : heap_) names.push_back(std::move(name));
    return names;
  }

 private:
  // Exact for the first two kinds; the edit distance, which takes long, is not less than this.
  Distance AtLeast(const std::string& name) const {
    const std::string lower = absl::AsciiStrToLower(name);
    const int difference =
        std::abs(static_cast<int>(lower.size()) - static_cast<int>(wanted_.size()));
    const size_t at = lower.find(wanted_);
    if (at == 0) return {Distance::kBeginsWith, difference};
    if (at != std::string::npos) return {Distance::kHolds, difference};
    return {Distance::kDiffers, difference};
  }

  const std::string wanted_;  // in small letters
  const size_t count_;
  std::vector<std::pair<Distance, std::string>> heap_;  // the farthest first
};

}  // namespace

EntityNames::EntityNames(const Checkpoint& checkpoint, EntityTypeId type)
    : checkpoint_(checkpoint),
      type_(type),
      partitions_(checkpoint.entity_counts()[static_cast<size_t>(type)].size()) {}

const EntityConfig& EntityNames::type() const {
  return checkpoint_.config().entities[static_cast<size_t>(type_)];
}

absl::StatusOr<const std::vector<std::string>*> EntityNames::OfPartition(PartitionId partition) {
  auto& names = partitions_[static_cast<size_t>(partition)];
  if (!names.has_value()) {
    WEFT_ASSIGN_OR_RETURN(names, checkpoint_.EntityNames({type_, partition}));
  }
  return &*names;
}

absl::StatusOr<std::optional<EntityPosition>> EntityNames::Find(const std::string& name) {
  for (PartitionId p = 0; p < static_cast<PartitionId>(partitions_.size()); ++p) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string>* names, OfPartition(p));
    const auto found = std::ranges::find(*names, name);
    if (found != names->end()) {
      return EntityPosition{p, static_cast<EntityOffset>(found - names->begin())};
    }
  }
  return std::optional<EntityPosition>();
}

absl::StatusOr<std::string> EntityNames::NameOf(EntityPosition position) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string>* names, OfPartition(position.partition));
  return (*names)[static_cast<size_t>(position.offset)];
}

absl::StatusOr<std::vector<std::string>> ClosestNames(absl::Span<EntityNames> types,
                                                      const std::string& name, int count) {
  NearestNames nearest(name, count);
  for (EntityNames& type : types) {
    for (PartitionId p = 0; p < static_cast<PartitionId>(type.partitions_.size()); ++p) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<std::string>* names, type.OfPartition(p));
      for (const std::string& candidate : *names) nearest.Offer(candidate);
    }
  }
  return nearest.Take();
}

std::string ClosestText(const std::vector<std::string>& closest) {
  return closest.empty() ? "" : absl::StrCat("; the closest are: ", absl::StrJoin(closest, ", "));
}

absl::StatusOr<EntityPosition> FindEntity(EntityNames& names, const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(const std::optional<EntityPosition> position, names.Find(name));
  if (position.has_value()) return *position;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> closest,
                        ClosestNames(absl::MakeSpan(&names, 1), name, 5));
  const std::string& type = names.type().name;
  const std::string what = names.type().featurized
                               ? absl::StrCat("feature \"", name, "\" of ", type)
                               : absl::StrCat(type, " \"", name, "\"");
  return absl::NotFoundError(absl::StrCat("there is no ", what, ClosestText(closest)));
}

}  // namespace weft::cli
