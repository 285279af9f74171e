#include "services/common/rpc/roles.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

constexpr Role kRoles[] = {Role::kLockServer, Role::kPartitionServer, Role::kParamServer,
                           Role::kTrainer, Role::kOperator};
constexpr absl::string_view kDomain = ".weft";

}  // namespace

const char* RoleWord(Role role) {
  switch (role) {
    case Role::kLockServer:
      return "lock-server";
    case Role::kPartitionServer:
      return "partition-server";
    case Role::kParamServer:
      return "param-server";
    case Role::kTrainer:
      return "trainer";
    case Role::kOperator:
      return "operator";
  }
  return "nobody";
}

std::string ToString(RoleSet roles) {
  std::vector<std::string> words;
  for (const Role role : kRoles) {
    if (roles.Has(role)) words.emplace_back(RoleWord(role));
  }
  return words.empty() ? "no role" : absl::StrJoin(words, ", ");
}

std::string RoleDnsName(Role role) { return absl::StrCat(RoleWord(role), kDomain); }

void AddRoleOf(absl::string_view dns_name, RoleSet* roles) {
  if (!absl::ConsumeSuffix(&dns_name, kDomain)) return;
  for (const Role role : kRoles) {
    if (dns_name == RoleWord(role)) roles->Add(role);
  }
}

}  // namespace weft
