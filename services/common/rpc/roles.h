// Roles: what a certificate makes of its holder.
//
// A certificate carries a role when one of its DNS names is the role's: `trainer.weft`. It may
// carry several. Names are compared as a whole; wildcards, common names and addresses mean nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

enum class Role : uint8_t { kLockServer, kPartitionServer, kParamServer, kTrainer, kOperator };

class RoleSet {
 public:
  constexpr RoleSet() = default;
  constexpr RoleSet(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }

  static constexpr RoleSet All() {
    return {Role::kLockServer, Role::kPartitionServer, Role::kParamServer, Role::kTrainer,
            Role::kOperator};
  }

  constexpr void Add(Role role) { bits_ = static_cast<uint8_t>(bits_ | Bit(role)); }
  constexpr bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  constexpr bool HasAny(RoleSet other) const { return (bits_ & other.bits_) != 0; }
  constexpr bool HasAll(RoleSet other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr bool empty() const { return bits_ == 0; }

  bool operator==(const RoleSet&) const = default;

 private:
  static constexpr uint8_t Bit(Role role) {
    return static_cast<uint8_t>(1u << static_cast<unsigned>(role));
  }
  uint8_t bits_ = 0;
};

// "lock-server", "partition-server", "param-server", "trainer", "operator".
const char* RoleWord(Role role);
// "trainer, operator"; "no role".
std::string ToString(RoleSet roles);

// The DNS name that carries the role: "trainer.weft".
std::string RoleDnsName(Role role);
// Adds the role that the DNS name carries, if any.
void AddRoleOf(absl::string_view dns_name, RoleSet* roles);

}  // namespace weft
