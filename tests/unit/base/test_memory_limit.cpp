#include "base/memory_limit.h"

#include "catch.h"
#include "planted_root.h"

using namespace xqajit;
using testing::PlantedRoot;

namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

constexpr std::uint64_t kMiB = 1 << 20;

std::string mebibytes(std::uint64_t count) { return std::to_string(count * kMiB) + "\n"; }

// A machine with 16 GiB available.
Files with(Files files) {
    files.emplace_back("/proc/meminfo", "MemTotal:       33554432 kB\nMemFree:         1048576 kB\nMemAvailable:   16777216 kB\n");
    return files;
}

}  // namespace

TEST_CASE("the memory left is the least of the machine's and of each limit above this process", "[base][J25]") {
    std::string const v2 = "/sys/fs/cgroup", v1 = "/sys/fs/cgroup/memory";
    std::string const none = "9223372036854771712\n";  // how version 1 writes that there is none
    struct Row {
        char const* what;
        Files files;
        std::uint64_t mebibytes;
    };
    for (Row const& row : {
             Row{"the machine alone", with({}), 16384},
             Row{"version 2", with({{"/proc/self/cgroup", "0::/\n"}, {v2 + "/memory.max", mebibytes(2048)}}), 2048},
             Row{"less what is used, but for files that can be dropped",
                 with({{"/proc/self/cgroup", "0::/\n"},
                       {v2 + "/memory.max", mebibytes(2048)},
                       {v2 + "/memory.current", mebibytes(1500)},
                       {v2 + "/memory.stat", "anon 1\nfile 9\ninactive_file " + mebibytes(500) + "active_file 7\n"}}),
                 1048},
             Row{"more used than the limit",
                 with({{"/proc/self/cgroup", "0::/\n"},
                       {v2 + "/memory.max", mebibytes(100)},
                       {v2 + "/memory.current", mebibytes(200)}}),
                 0},
             Row{"no limit", with({{"/proc/self/cgroup", "0::/a\n"}, {v2 + "/a/memory.max", "max\n"}}), 16384},
             Row{"a limit above the machine's", with({{"/proc/self/cgroup", "0::/\n"}, {v2 + "/memory.max", mebibytes(99999)}}),
                 16384},
             Row{"throttled below the limit",
                 with({{"/proc/self/cgroup", "0::/\n"},
                       {v2 + "/memory.max", mebibytes(2048)},
                       {v2 + "/memory.high", mebibytes(1024)}}),
                 1024},
             Row{"a group above has less",
                 with({{"/proc/self/cgroup", "0::/a/b/c\n"},
                       {v2 + "/a/b/c/memory.max", "max\n"},
                       {v2 + "/a/b/memory.max", mebibytes(3000)},
                       {v2 + "/a/memory.max", mebibytes(700)}}),
                 700},
             Row{"a group below has less",
                 with({{"/proc/self/cgroup", "0::/a/b\n"},
                       {v2 + "/a/b/memory.max", mebibytes(300)},
                       {v2 + "/a/memory.max", mebibytes(700)}}),
                 300},
             Row{"a container that sees the host's path",
                 with({{"/proc/self/cgroup", "0::/pods/x\n"}, {v2 + "/memory.max", mebibytes(512)}}), 512},
             Row{"version 1",
                 with({{"/proc/self/cgroup", "5:cpu,memory:/a\n4:cpuset:/b\n"},
                       {v1 + "/a/memory.limit_in_bytes", mebibytes(600)},
                       {v1 + "/a/memory.usage_in_bytes", mebibytes(250)},
                       {v1 + "/a/memory.stat", "inactive_file 5\ntotal_inactive_file " + mebibytes(50)}}),
                 400},
             Row{"version 1 without a limit", with({{"/proc/self/cgroup", "4:memory:/\n"}, {v1 + "/memory.limit_in_bytes", none}}),
                 16384},
             Row{"both versions",
                 with({{"/proc/self/cgroup", "4:memory:/a\n0::/b\n"},
                       {v1 + "/a/memory.limit_in_bytes", mebibytes(800)},
                       {v2 + "/b/memory.max", mebibytes(900)}}),
                 800},
             Row{"no /proc/meminfo", {{"/proc/self/cgroup", "0::/\n"}, {v2 + "/memory.max", mebibytes(64)}}, 64},
         }) {
        PlantedRoot const root(row.files);
        INFO(row.what);
        REQUIRE(available_memory(root.path()).has_value());
        CHECK(*available_memory(root.path()) == row.mebibytes * kMiB);
    }
}

TEST_CASE("where no limit and no memory is told there is none to go by", "[base][J25]") {
    for (Files const& files :
         {Files{}, Files{{"/proc/self/cgroup", "nonsense\n0::/\n"}}, Files{{"/proc/meminfo", "MemAvailable: x kB\n"}}}) {
        PlantedRoot const root(files);
        CHECK_FALSE(available_memory(root.path()).has_value());
    }
    CHECK(available_memory().has_value());  // this machine's
}
