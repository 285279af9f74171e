// Partition and parameter servers of a run that is disturbed at random: what they hold, what they
// forget, and how they follow the lock server's orders.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "services/common/random.h"
#include "tests/lock_server/cluster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft::testing {

// What a version was trained with.
using Content = std::multiset<std::pair<int64_t, Bucket>>;  // (pass, bucket)

class RandomStores {
 public:
  static constexpr StoreId kDisk = 11;
  static constexpr StoreId kMemory = 12;
  static constexpr StoreId kParams = 21;

  // Both must outlive this object.
  RandomStores(ClusterRun* run, RandomStream* random) : run_(run), random_(random) {}

  // Whether it can be read there.
  bool Has(const Place& place, const PartitionVersion& version) const {
    if (place.store_id == kDisk) return disk_.contains(version);
    if (memory_disk_.contains(version)) return true;
    return place.incarnation == incarnations_.at(kMemory) && memory_.contains(version);
  }

  // Stores it, and says where.
  Place Put(StoreId store, const PartitionVersion& version, const Content& content) {
    const auto [known, is_new] = content_.emplace(version, content);
    EXPECT_EQ(known->second, content) << "one name, two contents";
    if (store == kDisk) {
      disk_.insert(version);
      return {kDisk, 0};
    }
    memory_.insert(version);
    return {kMemory, incarnations_.at(kMemory)};
  }
  const Content& content(const PartitionVersion& version) const { return content_.at(version); }
  // Whether the lock server has ever let it be deleted.
  bool WasGarbage(const PartitionVersion& version) const { return garbage_.contains(version); }

  void KillMemory() {
    ++incarnations_[kMemory];
    memory_.clear();
  }
  void LoseParams() {
    params_ = {};  // its disk
    ++incarnations_[kParams];
  }

  // All report and do as they are told.
  void Sync() {
    for (int round = 0; round < 3; ++round) {
      for (const StoreId store : {kDisk, kMemory}) SyncStore(store);
      SyncParams();
    }
  }

 private:
  void SyncStore(StoreId store) {
    StoreReport report;
    const bool durable = store == kDisk;
    report.server = {ServerRole::kPartition, store, incarnations_.at(store), "h", durable};
    report.results = std::exchange(results_[store], {});
    if (!durable) report.persisted = std::exchange(persisted_, {});
    const auto told = run_->coordinator->Sync(report);
    ASSERT_THAT(told, IsOk());
    run_->Sync();
    for (const NumberedOrder& order : told->orders) {
      if (const auto* persist = std::get_if<PersistShards>(&order.order)) {
        for (const ShardName& shard : persist->shards) {
          if (!memory_.contains(shard.version)) continue;
          memory_disk_.insert(shard.version);
          persisted_.push_back(shard);
        }
      } else if (const auto* verify = std::get_if<VerifyShard>(&order.order)) {
        const bool there =
            Has({store, durable ? 0 : incarnations_.at(store)}, verify->shard.version);
        results_[store].push_back(
            {order.id, there ? absl::OkStatus() : absl::NotFoundError("not here"), std::nullopt});
      }
    }
    if (!told->keep_list.has_value()) return;
    const std::set<PartitionVersion> keep(told->keep_list->keep.begin(),
                                          told->keep_list->keep.end());
    const auto garbage = [&](const PartitionVersion& version) {
      const bool gone = version.token <= told->keep_list->high_water && !keep.contains(version);
      if (gone) garbage_.insert(version);
      return gone;
    };
    std::erase_if(durable ? disk_ : memory_, garbage);
    if (!durable) std::erase_if(memory_disk_, garbage);
  }

  void SyncParams() {
    StoreReport report;
    report.server = {ServerRole::kParam, kParams, incarnations_.at(kParams), "p", true};
    report.params = params_;
    report.results = std::exchange(results_[kParams], {});
    const auto told = run_->coordinator->Sync(report);
    ASSERT_THAT(told, IsOk());
    run_->Sync();
    for (const NumberedOrder& order : told->orders) {
      if (const auto* restore = std::get_if<RestoreParameters>(&order.order)) {
        ASSERT_GT(restore->generation, params_.generation);
        params_ = {restore->generation, restore->first_open_pass, {}};
      } else if (const auto* cut = std::get_if<CutParameters>(&order.order)) {
        ASSERT_EQ(cut->generation, params_.generation);
        params_.first_open_pass = cut->first_open_pass;
      } else if (const auto* snapshot = std::get_if<StoreSnapshot>(&order.order)) {
        const StoreId store = random_->Below(2) == 0 ? kDisk : kMemory;
        const Place place = Put(store, snapshot->version, {});
        results_[kParams].push_back({order.id, absl::OkStatus(),
                                     VersionInfo{snapshot->version, {{0, 0, 1, 1, 1, {place}}}}});
      }
    }
  }

  ClusterRun* const run_;
  RandomStream* const random_;
  std::map<StoreId, Incarnation> incarnations_ = {{kDisk, 1}, {kMemory, 1000}, {kParams, 2000}};
  std::set<PartitionVersion> disk_;
  std::set<PartitionVersion> memory_;
  std::set<PartitionVersion> memory_disk_;
  std::map<PartitionVersion, Content> content_;
  std::set<PartitionVersion> garbage_;
  ParamServerState params_;
  std::map<StoreId, std::vector<OrderResult>> results_;
  std::vector<ShardName> persisted_;
};

}  // namespace weft::testing
