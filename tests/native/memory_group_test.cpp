#include "local_client/memory_group.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/handle.hpp"
#include "loopback.hpp"

namespace ucxstore::test {
namespace {

constexpr const char* kFirst = "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/c\n";
constexpr const char* kSecond = "1:name=systemd:/x\n0::/a/b\n";
constexpr const char* kFirstMount =
    "30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "31 30 0:27 / /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu\n"
    "32 30 0:28 / /sys/fs/cgroup/memory rw shared:1 master:2 - cgroup cgroup rw,memory\n";
constexpr const char* kSecondMount = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

using Files = std::map<std::string, std::string>;

bool limited(const char* cgroup, const char* mounts, const Files& files) {
    return has_memory_limit(cgroup, mounts, [&](const std::string& path) {
        const auto found = files.find(path);
        return found == files.end() ? std::nullopt : std::optional(found->second);
    });
}

TEST(MemoryGroup, TheGroupIsThatOfMemory) {
    EXPECT_EQ(memory_group(kFirst), "1:/a/b");
    EXPECT_EQ(memory_group(kSecond), "2:/a/b");
    EXPECT_NE(memory_group("0::/a"), memory_group("4:memory:/a"));
    EXPECT_EQ(memory_group("7:cpu:/x\n0::/\n"), "2:/");
    EXPECT_EQ(memory_group(""), "2:");
}

TEST(MemoryGroup, LimitsOfVersionTwo) {
    const Files none = {{"/sys/fs/cgroup/a/b/memory.max", "max\n"},
                        {"/sys/fs/cgroup/a/b/memory.high", "max\n"},
                        {"/sys/fs/cgroup/a/memory.max", "max\n"}};
    EXPECT_FALSE(limited(kSecond, kSecondMount, none));
    for (const char* const path : {"/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max",
                                   "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/a/b/memory.high"}) {
        Files one = none;
        one[path] = "1073741824\n";
        EXPECT_TRUE(limited(kSecond, kSecondMount, one)) << path;
    }
}

TEST(MemoryGroup, LimitsOfVersionOne) {
    Files files = {{"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"}};
    EXPECT_FALSE(limited(kFirst, kFirstMount, files));
    files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "500000000\n";
    EXPECT_TRUE(limited(kFirst, kFirstMount, files));
}

TEST(MemoryGroup, AContainerSeesItsOwnGroupAsTheFirst) {
    const char* const mounts =
        "32 30 0:28 /docker/7 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    const Files files = {{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000000\n"}};
    EXPECT_TRUE(limited("4:memory:/docker/7\n", mounts, files));
    EXPECT_FALSE(limited("4:memory:/docker/7\n", mounts, {}));
}

TEST(MemoryGroup, WhatCannotBeSeenMayHaveALimit) {
    EXPECT_TRUE(limited(kSecond, "", {}));
    EXPECT_TRUE(limited(kFirst, kSecondMount, {}));
    EXPECT_FALSE(limited("", "", {})) << "there are no groups";
}

TEST(MemoryGroup, AProcessCanLeaveMemoryToItself) {
    const auto pair = control_pair();
    EXPECT_TRUE(can_leave_memory(pair.one.get()));
}

}  // namespace
}  // namespace ucxstore::test
