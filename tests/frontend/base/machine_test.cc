// Tests cgroup limits, read from fake copies of /proc and /sys.
#include "frontend/base/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace onnxtrain {
namespace {

class Groups : public testing::Test {
 protected:
  Groups() : root_(testing::TempDir() + "/groups." + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
  }
  ~Groups() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void InGroup(const std::string& lines) { Write("/proc/self/cgroup", lines); }

  std::string root_;
};

TEST_F(Groups, NoneLimitNothing) {
  EXPECT_EQ(CgroupCpuLimit(root_), INFINITY);
  EXPECT_EQ(CgroupAvailableMemory(root_), INFINITY);
  InGroup("0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  Write("/sys/fs/cgroup/memory.current", "4096\n");
  EXPECT_EQ(CgroupCpuLimit(root_), INFINITY);
  EXPECT_EQ(CgroupAvailableMemory(root_), INFINITY);
}

TEST_F(Groups, VersionTwo) {
  InGroup("0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  Write("/sys/fs/cgroup/memory.max", "1000000\n");
  Write("/sys/fs/cgroup/memory.current", "400000\n");
  EXPECT_EQ(CgroupCpuLimit(root_), 1.5);
  EXPECT_EQ(CgroupAvailableMemory(root_), 600000);
}

TEST_F(Groups, TheTightestOfNestedGroupsCounts) {
  InGroup("0::/batch/job/step\n");
  Write("/sys/fs/cgroup/batch/cpu.max", "800000 100000\n");
  Write("/sys/fs/cgroup/batch/job/cpu.max", "300000 100000\n");
  Write("/sys/fs/cgroup/batch/job/step/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/other/cpu.max", "100000 100000\n");
  EXPECT_EQ(CgroupCpuLimit(root_), 3);
}

TEST_F(Groups, VersionOne) {
  InGroup("9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpuLimit(root_), INFINITY);
  Write("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "250000\n");
  Write("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2000\n");
  EXPECT_EQ(CgroupCpuLimit(root_), 2.5);
  EXPECT_EQ(CgroupAvailableMemory(root_), 3000);  // a container that sees its own group as the root
}

TEST_F(Groups, NonsenseIsNoLimit) {
  InGroup("nonsense\n0\n0::\n:::\n4:cpu\n");
  Write("/sys/fs/cgroup/cpu.max", "lots of it\n");
  EXPECT_EQ(CgroupCpuLimit(root_), INFINITY);
}

TEST(Machine, CpusFollowTheAffinity) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(CpuCount(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(CpuCount(), 1);
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace onnxtrain
