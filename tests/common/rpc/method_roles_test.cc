#include "services/common/rpc/method_roles.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "weft/v1/lock_service.pb.h"
#include "weft/v1/param_service.pb.h"
#include "weft/v1/partition_service.pb.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

// The paths of all methods of the services in proto/.
std::set<std::string> AllMethods() {
  // Their descriptors are linked because of these.
  const std::string linked = v1::GetRunStateRequest().DebugString() +
                             v1::JoinRequest().DebugString() + v1::GetBlobRequest().DebugString();
  EXPECT_EQ(linked, "");
  std::set<std::string> paths;
  const std::string folder = absl::StrCat(std::getenv("WEFT_SOURCE_DIR"), "/proto");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".proto") continue;
    const std::string name = std::filesystem::relative(entry.path(), folder).string();
    const auto* const file =
        google::protobuf::DescriptorPool::generated_pool()->FindFileByName(name);
    if (file == nullptr) {
      EXPECT_FALSE(absl::StrContains(name, "service")) << "link " << name << " into this test";
      continue;
    }
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* const service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        paths.insert(absl::StrCat("/", service->full_name(), "/", service->method(m)->name()));
      }
    }
  }
  return paths;
}

TEST(MethodRolesTest, EveryMethodHasRolesAndEveryEntryAMethod) {
  const std::set<std::string> methods = AllMethods();
  ASSERT_GT(methods.size(), 25u);
  std::set<std::string> entries;
  for (const std::string& path : MethodsWithRoles()) {
    EXPECT_TRUE(entries.insert(path).second) << path << " is there twice";
    EXPECT_TRUE(methods.contains(path) || absl::StartsWith(path, "/grpc.")) << path;
  }
  for (const std::string& path : methods) {
    EXPECT_TRUE(entries.contains(path)) << path << ": say in method_roles.cc who may call it";
    EXPECT_THAT(CheckMayCall(path, {}), StatusIs(absl::StatusCode::kPermissionDenied)) << path;
    EXPECT_THAT(CheckMayCall(path, RoleSet::All()), IsOk()) << path;
  }
}

TEST(MethodRolesTest, WhatChangesARunIsForOperators) {
  constexpr RoleSet kOthers = {Role::kLockServer, Role::kPartitionServer, Role::kParamServer,
                               Role::kTrainer};
  for (const char* method :
       {"Rollback", "PauseRun", "PreserveCheckpoint", "PinCheckpoint", "UnpinCheckpoint",
        "ForgetStore", "BeginPush", "AddPushed", "CommitPush", "BeginImport", "AddEdges",
        "CompleteImport", "ReportEvaluation"}) {
    const std::string path = absl::StrCat("/weft.v1.LockService/", method);
    EXPECT_THAT(CheckMayCall(path, {Role::kOperator}), IsOk()) << path;
    EXPECT_THAT(CheckMayCall(path, kOthers), StatusIs(absl::StatusCode::kPermissionDenied)) << path;
  }
}

TEST(MethodRolesTest, ARefusalSaysWhoMay) {
  EXPECT_THAT(CheckMayCall("/weft.v1.LockService/Rollback", {Role::kTrainer}),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("certificate of trainer may not call "
                                       "weft.v1.LockService/Rollback"),
                             HasSubstr("operator may"))));
  EXPECT_THAT(CheckMayCall("/weft.v1.LockService/Unheard", RoleSet::All()),
              StatusIs(absl::StatusCode::kUnimplemented));
}

TEST(RolesTest, ARoleIsAWholeDnsName) {
  RoleSet roles;
  for (const char* name : {"trainer", "trainer.weft.example.org", "x.trainer.weft", "*.weft", "",
                           ".weft", "Trainer.weft", "trainer.weft.", "lock_server.weft"}) {
    AddRoleOf(name, &roles);
    EXPECT_TRUE(roles.empty()) << name;
  }
  AddRoleOf("trainer.weft", &roles);
  AddRoleOf("operator.weft", &roles);
  EXPECT_EQ(roles, RoleSet({Role::kTrainer, Role::kOperator}));
  EXPECT_EQ(ToString(roles), "trainer, operator");
}

}  // namespace
}  // namespace weft
