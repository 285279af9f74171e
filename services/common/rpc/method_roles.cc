#include "services/common/rpc/method_roles.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

struct MethodRoles {
  absl::string_view path;
  RoleSet roles;
};

constexpr RoleSet kAnyone = RoleSet::All();
constexpr RoleSet kTrainers = {Role::kTrainer};
constexpr RoleSet kStores = {Role::kPartitionServer, Role::kParamServer};
constexpr RoleSet kOperators = {Role::kOperator};
// Those who bring versions: what was trained, snapshots, imports and pushes.
constexpr RoleSet kWriters = {Role::kTrainer, Role::kParamServer, Role::kOperator};
constexpr RoleSet kReaders = {Role::kTrainer, Role::kOperator};

constexpr MethodRoles kMethods[] = {
    {"/weft.v1.LockService/Register", kTrainers},
    {"/weft.v1.LockService/Heartbeat", kTrainers},
    {"/weft.v1.LockService/AcquireBucket", kTrainers},
    {"/weft.v1.LockService/ReleaseBucket", kTrainers},
    {"/weft.v1.LockService/AbandonBucket", kTrainers},
    {"/weft.v1.LockService/Leave", kTrainers},
    {"/weft.v1.LockService/ReportUnreadable", kTrainers},
    {"/weft.v1.LockService/ReportFailure", kTrainers},
    {"/weft.v1.LockService/StoreSync", kStores},
    {"/weft.v1.LockService/BeginImport", kOperators},
    {"/weft.v1.LockService/AddEdges", kOperators},
    {"/weft.v1.LockService/CompleteImport", kOperators},
    {"/weft.v1.LockService/BeginPush", kOperators},
    {"/weft.v1.LockService/AddPushed", kOperators},
    {"/weft.v1.LockService/CommitPush", kOperators},
    {"/weft.v1.LockService/GetRunState", kAnyone},
    {"/weft.v1.LockService/GetCheckpoint", kAnyone},
    {"/weft.v1.LockService/PinCheckpoint", kOperators},
    {"/weft.v1.LockService/UnpinCheckpoint", kOperators},
    {"/weft.v1.LockService/PreserveCheckpoint", kOperators},
    {"/weft.v1.LockService/Rollback", kOperators},
    {"/weft.v1.LockService/PauseRun", kOperators},
    {"/weft.v1.LockService/ForgetStore", kOperators},
    {"/weft.v1.LockService/ReportEvaluation", kOperators},

    {"/weft.v1.ParamService/Join", kTrainers},
    {"/weft.v1.ParamService/Push", kTrainers},

    {"/weft.v1.PartitionService/PutBlob", kWriters},
    {"/weft.v1.PartitionService/GetBlob", kAnyone},
    {"/weft.v1.PartitionService/StatBlob", kReaders},
    {"/weft.v1.PartitionService/CopyBlob", kOperators},
    {"/weft.v1.PartitionService/ReadRows", kReaders},
    {"/weft.v1.PartitionService/ListManifests", {Role::kLockServer, Role::kOperator}},

    {"/grpc.health.v1.Health/Check", kAnyone},
    {"/grpc.health.v1.Health/Watch", kAnyone},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kOperators},
};

}  // namespace

absl::Status CheckMayCall(absl::string_view path, RoleSet caller) {
  const auto* const found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                         [&](const MethodRoles& m) { return m.path == path; });
  if (found == std::end(kMethods)) {
    return absl::UnimplementedError(absl::StrCat(path, " is not known to this server"));
  }
  if (caller.HasAny(found->roles)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("a certificate of ", ToString(caller),
                                                  " may not call ", path.substr(1), "; one of ",
                                                  ToString(found->roles), " may"));
}

std::vector<std::string> MethodsWithRoles() {
  std::vector<std::string> paths;
  for (const MethodRoles& method : kMethods) paths.emplace_back(method.path);
  return paths;
}

}  // namespace weft
