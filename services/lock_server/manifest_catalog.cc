#include "services/lock_server/manifest_catalog.h"

#include <utility>

namespace weft {

const Manifest* ManifestCatalog::Find(Token token) const {
  const auto found = manifests_.find(token);
  return found == manifests_.end() ? nullptr : &found->second;
}

Manifest* ManifestCatalog::Find(Token token) {
  return const_cast<Manifest*>(static_cast<const ManifestCatalog*>(this)->Find(token));
}

const Manifest* ManifestCatalog::FindVersion(int64_t version) const {
  const Manifest* found = nullptr;
  for (const auto& [token, manifest] : manifests_) {
    if (manifest.state != Manifest::State::kCommitted) continue;
    const bool beginning = manifest.position.pass == 0 && manifest.done.empty();
    if (manifest.version == version && (version > 0 || beginning)) found = &manifest;
  }
  return found;
}

const Manifest* ManifestCatalog::NewestCommitted(
    const std::function<bool(const Manifest&)>& may) const {
  for (auto it = manifests_.rbegin(); it != manifests_.rend(); ++it) {
    const Manifest& manifest = it->second;
    if (manifest.state == Manifest::State::kCommitted && may(manifest)) return &manifest;
  }
  return nullptr;
}

void ManifestCatalog::Put(Manifest manifest) {
  Remove(manifest.token);
  if (manifest.state != Manifest::State::kBroken) {
    for (const PartitionVersion& version : manifest.versions) ++held_[version];
  }
  const Token token = manifest.token;
  manifests_.emplace(token, std::move(manifest));
}

std::vector<PartitionVersion> ManifestCatalog::Remove(Token token) {
  const auto found = manifests_.find(token);
  if (found == manifests_.end()) return {};
  std::vector<PartitionVersion> gone = LetGo(found->second);
  manifests_.erase(found);
  return gone;
}

std::vector<PartitionVersion> ManifestCatalog::MarkBroken(Token token) {
  Manifest* manifest = Find(token);
  if (manifest == nullptr) return {};
  std::vector<PartitionVersion> gone = LetGo(*manifest);
  manifest->state = Manifest::State::kBroken;
  return gone;
}

std::vector<PartitionVersion> ManifestCatalog::LetGo(const Manifest& manifest) {
  std::vector<PartitionVersion> gone;
  if (manifest.state == Manifest::State::kBroken) return gone;
  for (const PartitionVersion& version : manifest.versions) {
    const auto held = held_.find(version);
    if (--held->second > 0) continue;
    held_.erase(held);
    gone.push_back(version);
  }
  return gone;
}

std::vector<PartitionVersion> ManifestCatalog::HeldVersions() const {
  std::vector<PartitionVersion> versions;
  for (const auto& [version, count] : held_) versions.push_back(version);
  return versions;
}

}  // namespace weft
