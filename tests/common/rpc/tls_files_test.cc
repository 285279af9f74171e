#include "services/common/rpc/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "services/common/file_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_ca.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;
using ::weft::testing::TempDir;
using ::weft::testing::TestCa;

class TlsFilesTest : public ::testing::Test {
 protected:
  // What is wrong, in one line that names the file.
  void ExpectUnusable(const TlsFiles& files, const std::string& file, const std::string& problem,
                      RoleSet needed = {Role::kTrainer}) {
    const auto read = ReadTlsFiles(files, needed, absl::Now());
    EXPECT_THAT(read, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr(file), HasSubstr(problem))));
    EXPECT_FALSE(absl::StrContains(read.status().message(), "\n"));
  }
  std::string Write(const std::string& name, const std::string& contents) {
    EXPECT_THAT(WriteFileAtomically(dir_.File(name), contents), IsOk());
    return dir_.File(name);
  }

  const TempDir dir_;
  const TestCa ca_{dir_.File("ca")};
  const TlsFiles good_ = ca_.Files("trainer");
};

TEST_F(TlsFilesTest, SayWhoTheProcessIs) {
  const auto one = ReadTlsFiles(good_, {Role::kTrainer}, absl::Now());
  ASSERT_THAT(one, IsOk());
  EXPECT_EQ(one->roles, RoleSet({Role::kTrainer}));
  EXPECT_EQ(one->serial.size(), 32u);
  EXPECT_LE(one->valid_from, absl::Now());
  EXPECT_GT(one->valid_until, absl::Now() + absl::Hours(24));

  const auto all = ReadTlsFiles(ca_.Files("cluster"), RoleSet::All(), absl::Now());
  ASSERT_THAT(all, IsOk());
  EXPECT_EQ(all->roles, RoleSet::All());
}

TEST_F(TlsFilesTest, CertificateAndKeyMayLieInOneFile) {
  const std::string both = Write("both.pem", *ReadFile(good_.certificate) + *ReadFile(good_.key));
  EXPECT_THAT(ReadTlsFiles({both, both, good_.ca}, {Role::kTrainer}, absl::Now()), IsOk());
}

TEST_F(TlsFilesTest, EachFileThatIsMissingIsNamed) {
  const std::string none = dir_.File("none.pem");
  ExpectUnusable({none, good_.key, good_.ca}, none, "No such file");
  ExpectUnusable({good_.certificate, none, good_.ca}, none, "No such file");
  ExpectUnusable({good_.certificate, good_.key, none}, none, "No such file");
  ExpectUnusable({good_.certificate, good_.key, dir_.path()}, dir_.path(), "is no PEM file");
}

TEST_F(TlsFilesTest, WhatIsNoPemIsNamed) {
  const std::string junk = Write("junk.pem", "this is no certificate\n");
  const std::string cut = Write("cut.pem", ReadFile(good_.certificate)->substr(0, 200));
  ExpectUnusable({junk, good_.key, good_.ca}, junk, "holds no certificate");
  ExpectUnusable({cut, good_.key, good_.ca}, cut, "holds a damaged certificate");
  ExpectUnusable({good_.certificate, junk, good_.ca}, junk, "holds no private key");
  ExpectUnusable({good_.certificate, good_.key, junk}, junk, "holds no certificate");
  // A key and a certificate are easily confused.
  ExpectUnusable({good_.key, good_.certificate, good_.ca}, good_.key, "holds no certificate");
}

TEST_F(TlsFilesTest, AKeyOfAnotherCertificateIsRefused) {
  ExpectUnusable({good_.certificate, ca_.File("operator.key"), good_.ca}, "operator.key",
                 "is not the key of the certificate in");
}

TEST_F(TlsFilesTest, ACertificateOfAnotherCaIsRefused) {
  const TestCa other(dir_.File("other"));
  ExpectUnusable({good_.certificate, good_.key, other.File("ca.crt")}, good_.certificate,
                 "is not of a CA in");
}

TEST_F(TlsFilesTest, ACertificateIsGoodInItsTimeOnly) {
  const auto now = absl::Now();
  const auto late = ReadTlsFiles(good_, {Role::kTrainer}, now + absl::Hours(24 * 31));
  EXPECT_THAT(late,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has expired at 20")));
  const auto early = ReadTlsFiles(good_, {Role::kTrainer}, now - absl::Hours(24));
  EXPECT_THAT(early,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not valid before")));
}

TEST_F(TlsFilesTest, TheRoleIsAskedFor) {
  ExpectUnusable(good_, good_.certificate, "carries the roles of trainer", {Role::kLockServer});
  EXPECT_THAT(ReadTlsFiles(good_, {}, absl::Now()), IsOk()) << "any role will do";
}

}  // namespace
}  // namespace weft
