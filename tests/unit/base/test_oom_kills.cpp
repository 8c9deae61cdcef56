#include "base/oom_kills.h"

#include "catch.h"
#include "planted_root.h"

using namespace xqajit;
using testing::PlantedRoot;

TEST_CASE("kills for lack of memory are those of the control group, else of the machine, else none", "[base]") {
    std::string const events = "low 0\nhigh 0\nmax 7\noom 4\noom_kill 3\noom_group_kill 9\n";
    std::string const vmstat = "nr_free_pages 11\noom_kill 5\ndrop_pagecache 1\n";
    struct Row {
        std::vector<std::pair<std::string, std::string>> files;
        std::uint64_t kills;
    };
    for (Row const& row : {
             Row{{}, 0},
             Row{{{"/proc/vmstat", vmstat}}, 5},
             Row{{{"/proc/vmstat", "nr_free_pages 11"}}, 0},
             Row{{{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/memory.events", events}, {"/proc/vmstat", vmstat}}, 3},
             Row{{{"/proc/self/cgroup", "0::/a/b\n"}, {"/sys/fs/cgroup/a/b/memory.events", events}, {"/proc/vmstat", vmstat}}, 3},
             Row{{{"/proc/self/cgroup", "4:memory:/a\n0::/b\n"}, {"/sys/fs/cgroup/b/memory.events", events}}, 3},
             Row{{{"/proc/self/cgroup", "4:memory:/a\n"}, {"/proc/vmstat", vmstat}}, 5},
             Row{{{"/proc/self/cgroup", "0::/gone\n"}, {"/proc/vmstat", vmstat}}, 5},
         }) {
        PlantedRoot const root(row.files);
        INFO(row.files.size());
        CHECK(oom_kills(root.path()) == row.kills);
    }
}

TEST_CASE("kills for lack of memory never become fewer on this machine", "[base]") {
    std::uint64_t const before = oom_kills();
    CHECK(oom_kills() >= before);
}
