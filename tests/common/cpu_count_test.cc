#include "services/common/cpu_count.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

class ControlGroupCoresTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  double Cores() const { return ControlGroupCores(root_.path()); }

  testing::TempDir root_;
};

TEST_F(ControlGroupCoresTest, WithoutControlGroupsThereIsNoQuota) { EXPECT_EQ(Cores(), 0); }

TEST_F(ControlGroupCoresTest, InsideAContainerTheQuotaLiesAtTheTop) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "150000 100000\n");

  EXPECT_EQ(Cores(), 1.5);
}

TEST_F(ControlGroupCoresTest, TheLeastQuotaOfTheGroupsAboveCounts) {
  Write("/proc/self/cgroup", "0::/a/b/c\n");
  Write("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n");

  EXPECT_EQ(Cores(), 2);
}

TEST_F(ControlGroupCoresTest, MaxIsNoQuota) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");

  EXPECT_EQ(Cores(), 0);
}

TEST_F(ControlGroupCoresTest, VersionOneHasTwoFiles) {
  Write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/x\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");

  EXPECT_EQ(Cores(), 0.5);
}

TEST_F(ControlGroupCoresTest, DamagedFilesAreNoQuota) {
  Write("/proc/self/cgroup", "0::/a\nnonsense\n");
  Write("/sys/fs/cgroup/a/cpu.max", "lots");
  Write("/sys/fs/cgroup/cpu.max", "100 0");

  EXPECT_EQ(Cores(), 0);
}

TEST(AvailableCoresTest, IsAtLeastOne) { EXPECT_GE(AvailableCores(), 1); }

}  // namespace
}  // namespace weft
