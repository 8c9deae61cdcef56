// The workers of a prewarm: how many, which kernels of a list, what a killed one costs, and how they are stopped.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "service/prewarm_share.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

constexpr std::uint64_t kMiB = 1 << 20;

// Three kernels, and one of them again.
constexpr char kList[] = R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "page_size": 64},
  "shapes": [{"name": "a", "head_dim": [64, 128]}, {"name": "b", "head_dim": 128}, {"name": "c", "head_dim": 80}]})";

xqajit_prewarm_options options_for(char const* archs) {
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = archs;
    return options;
}

struct Outcome {
    json document;
    Status status;
};
Outcome prewarm(Service& service, xqajit_prewarm_options const& options, std::string const& list = kList) {
    Service::PrewarmReport const report = must(service.prewarm(list, options));
    INFO(report.json);
    return {json::parse(report.json), report.status};
}

}  // namespace

TEST_CASE("as many workers as cores and memory allow, or as were asked for", "[service][J25]") {
    struct Row {
        std::uint32_t asked;
        std::size_t kernels;
        std::uint32_t cores;
        std::optional<std::uint64_t> memory;
        std::uint32_t workers;
        char const* reason;
    };
    for (Row const& row : {
             Row{0, 108, 16, 900 * kMiB, 3, "16 cores, 900 MiB of memory for 256 MiB each"},
             Row{0, 108, 64, 2048 * kMiB, 8, "64 cores, 2048 MiB of memory for 256 MiB each"},
             Row{0, 108, 2, 65536 * kMiB, 2, "2 cores, 65536 MiB of memory for 256 MiB each"},
             Row{0, 108, 16, 10 * kMiB, 1, "16 cores, 10 MiB of memory for 256 MiB each"},
             Row{0, 108, 1, std::nullopt, 1, "1 core"},
             Row{0, 108, 0, std::nullopt, 1, "1 core"},  // unknown
             Row{0, 3, 16, 65536 * kMiB, 3, "16 cores, 65536 MiB of memory for 256 MiB each, 3 kernels to compile"},
             Row{12, 108, 2, 10 * kMiB, 12, "as asked for"},
             Row{12, 1, 2, 10 * kMiB, 1, "as asked for, 1 kernel to compile"},
         }) {
        WorkerChoice const choice = choose_workers(row.asked, row.kernels, row.cores, row.memory);
        CHECK(choice.workers == row.workers);
        CHECK(choice.reason == row.reason);
    }
}

TEST_CASE("shards of many kernels are about equal, and each kernel is in one", "[service]") {
    for (std::uint32_t const shards : {1u, 2u, 3u, 7u, 16u}) {
        std::map<std::uint32_t, int> sizes;
        constexpr int kKernels = 20000;
        for (int kernel = 0; kernel < kKernels; ++kernel) {
            Digest const key = digest_of(std::to_string(kernel));
            int homes = 0;
            for (std::uint32_t shard = 0; shard < shards; ++shard) {
                if (!in_shard(key, shard, shards)) continue;
                ++sizes[shard];
                ++homes;
            }
            REQUIRE(homes == 1);
        }
        for (auto const& [shard, size] : sizes) {
            INFO("shard " << shard << " of " << shards);
            CHECK(size * static_cast<int>(shards) > kKernels * 8 / 10);
            CHECK(size * static_cast<int>(shards) < kKernels * 12 / 10);
        }
    }
    CHECK(in_shard({1, 2}, 0, 0));
}

TEST_CASE("the shards of a list share no kernel and together are the list, in any order and with duplicates", "[service]") {
    World world;
    std::string const reversed =
        R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "page_size": 64},
      "shapes": [{"head_dim": [80, 128, 128]}, {"head_dim": 64}, {"head_dim": 80}]})";
    auto const keys = [](json const& document) {
        std::set<std::string> result;
        for (json const& kernel : document["kernels"]) result.insert(kernel["key"].get<std::string>());
        return result;
    };
    std::set<std::string> seen;
    std::size_t total = 0;
    for (std::uint32_t shard = 0; shard < 3; ++shard) {
        xqajit_prewarm_options options = options_for("sm_90a,sm_80,sm_120");
        options.shard = shard;
        options.shards = 3;
        Outcome const outcome = prewarm(*world.service(), options);
        require_ok(outcome.status);
        CHECK(outcome.document["shard"] == json({{"index", shard}, {"count", 3}, {"kernels_of_all", 9}}));
        std::set<std::string> const mine = keys(outcome.document);
        CHECK(outcome.document["summary"]["compiled"] == mine.size());
        CHECK(keys(prewarm(*world.service(), options, reversed).document) == mine);
        seen.insert(mine.begin(), mine.end());
        total += mine.size();
    }
    CHECK(seen.size() == 9);
    CHECK(total == 9);
    json const whole = prewarm(*world.service(), options_for("sm_90a,sm_80,sm_120")).document;
    CHECK(whole["summary"]["hits"] == 9);
    CHECK(whole["shard"]["count"] == 1);
    CHECK(keys(whole) == seen);
    CHECK(world.compiles() == 9);
}

TEST_CASE("a shape that no family serves is told by one shard, and a shard that there is not is refused", "[service]") {
    World world;
    std::string const list = R"({"version": 1, "shapes": [
      {"name": "bad", "q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64, "cross_attention": 1}]})";
    int told = 0;
    xqajit_prewarm_options options = options_for("sm_90a");
    options.shards = 5;
    for (; options.shard < 5; ++options.shard) told += !prewarm(*world.service(), options, list).status.ok();
    CHECK(told == 1);
    Status const status = world.service()->prewarm(list, options).status();
    CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(status.message() == "shard is 5 of 5 shards: accepted are 0..4");
    options.shards = 0;
    CHECK(world.service()->prewarm(list, options).status().message() == "shard is 5 of 1 shards: accepted are 0..0");
}

TEST_CASE("a kernel whose worker was killed is compiled when the others are done", "[service][J25]") {
    for (char const* how : {"kill", "error", "abort"}) {
        INFO(how);
        World world;
        World::set("FAKE_NVRTC_ONLY", "-DXQAJIT_HEAD_DIM=64");
        World::set("FAKE_NVRTC_ONCE", world.folder() + "/once");
        World::set("FAKE_NVRTC_MEMORY", how);
        struct Seen {
            std::vector<std::string> lines;
            std::uint32_t starts = 0, kernels = 0, workers = 0;
        } seen;
        xqajit_prewarm_options options = options_for("sm_90a");
        options.jobs = 2;
        options.user = &seen;
        options.progress = [](void* user, std::uint32_t, std::uint32_t, char const* text) {
            static_cast<Seen*>(user)->lines.push_back(text);
        };
        options.start = [](void* user, std::uint32_t kernels, std::uint32_t workers, char const*) {
            Seen& s = *static_cast<Seen*>(user);
            ++s.starts;
            s.kernels = kernels;
            s.workers = workers;
        };
        auto const service = world.service();
        Outcome const outcome = prewarm(*service, options);
        require_ok(outcome.status);
        CHECK(outcome.document["summary"]["compiled"] == 3);
        CHECK(outcome.document["summary"]["retried"] == 1);
        CHECK(outcome.document["kernels"][0]["tries"] == 2);
        CHECK_FALSE(outcome.document["kernels"][1].contains("tries"));
        CHECK(world.compiles() == 4);
        CHECK(service->stats().compile_failures == 0);
        REQUIRE(seen.lines.size() == 3);
        CHECK(contains(seen.lines.back(), "ms at try 2, alone (a)"));
        CHECK(world.logged("tried again, alone").size() == 1);
        CHECK(seen.starts == 1);
        CHECK(seen.kernels == 3);
        CHECK(seen.workers == 2);
    }
}

TEST_CASE("a kernel that is killed alone too has failed, and a crash or an error is not tried again", "[service][J25]") {
    struct Row {
        char const *variable, *value, *named;
        int tries;
    };
    for (Row const& row :
         {Row{"FAKE_NVRTC_MEMORY", "kill", "SIGKILL", 2}, Row{"FAKE_NVRTC_MEMORY", "throw", "ran out of memory", 2},
          Row{"FAKE_NVRTC_CRASH", "1", "SIGSEGV", 1}, Row{"FAKE_NVRTC_FAIL", "a bad day", "a bad day", 1}}) {
        INFO(row.variable << " " << row.value);
        World world;
        World::set("FAKE_NVRTC_ONLY", "-DXQAJIT_HEAD_DIM=64");
        World::set(row.variable, row.value);
        auto const service = world.service();
        Outcome const outcome = prewarm(*service, options_for("sm_90a"));
        CHECK(outcome.status.code() == XQAJIT_COMPILE_FAILED);
        CHECK(contains(outcome.status.message(), row.named));
        CHECK(contains(outcome.status.message(), "(a)"));
        CHECK(outcome.document["summary"]["compiled"] == 2);
        CHECK(outcome.document["summary"]["failed"] == 1);
        CHECK(outcome.document["summary"]["retried"] == row.tries - 1);
        CHECK(world.compiles() == 2u + static_cast<unsigned>(row.tries));
        CHECK(service->stats().compile_failures == 1);
    }
}

TEST_CASE("the report has the workers, the slowest kernels and what they took together", "[service]") {
    World world;
    World::set("FAKE_NVRTC_ONLY", "-DXQAJIT_HEAD_DIM=80");
    World::set("FAKE_NVRTC_DELAY_MS", "300");
    xqajit_prewarm_options options = options_for("sm_90a");
    options.jobs = 2;
    json const document = prewarm(*world.service(), options).document;
    CHECK(document["workers"] == json({{"count", 2}, {"reason", "as asked for"}}));
    REQUIRE(document["slowest"].size() == 3);
    CHECK(document["slowest"][0]["names"] == json({"c"}));
    CHECK(document["slowest"][0]["ms"] >= document["slowest"][1]["ms"]);
    CHECK(document["slowest"][1]["ms"] >= document["slowest"][2]["ms"]);
    json const& summary = document["summary"];
    CHECK(summary["compile_seconds"].get<double>() >= 0.3);
    CHECK(summary["speed_up"].get<double>() == Approx(summary["compile_seconds"].get<double>() / summary["seconds"].get<double>()));
    json const again = prewarm(*world.service(), options).document;
    CHECK(again["workers"].is_null());
    CHECK(again["slowest"].empty());
    CHECK(again["summary"]["speed_up"].is_null());
}

TEST_CASE("a prewarm that is stopped keeps what it has, and the next goes on", "[service]") {
    World world;
    int stop = 0;
    xqajit_prewarm_options options = options_for("sm_90a");
    options.jobs = 1;
    options.stop = &stop;
    options.user = &stop;
    options.progress = [](void* user, std::uint32_t, std::uint32_t, char const*) { *static_cast<int*>(user) = 1; };
    Outcome const first = prewarm(*world.service(), options);
    CHECK(first.status.code() == XQAJIT_INTERRUPTED);
    CHECK(first.status.message() == "1 of 3 kernels done; run it again to go on");
    CHECK(first.document["summary"]["compiled"] == 1);
    CHECK(first.document["summary"]["stopped"] == 2);
    CHECK(world.cache_files().size() == 1);
    Outcome const idle = prewarm(*world.service(), options);  // asked to stop before it began
    CHECK(idle.status.message() == "0 of 3 kernels done; run it again to go on");
    Outcome const second = prewarm(*world.service(), options_for("sm_90a"));
    require_ok(second.status);
    CHECK(second.document["summary"]["hits"] == 1);
    CHECK(second.document["summary"]["compiled"] == 2);
}

TEST_CASE("stopping ends the compiles that run, however long they would", "[service]") {
    World world;
    World::set("FAKE_NVRTC_HANG", "1");
    int stop = 0;
    xqajit_prewarm_options options = options_for("sm_90a");
    options.jobs = 2;
    options.stop = &stop;
    int score = 0;
    std::jthread later([&] {
        while (world.compiles() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::string target, process;
        std::ifstream(world.folder() + "/compiles") >> target >> process;
        std::ifstream("/proc/" + process + "/oom_score_adj") >> score;
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    });
    auto const service = world.service();
    Outcome const outcome = prewarm(*service, options);
    later.join();
    CHECK(score == 1000);  // where memory runs out the workers go first
    CHECK(outcome.status.code() == XQAJIT_INTERRUPTED);
    CHECK(outcome.document["summary"]["stopped"] == 3);
    CHECK(outcome.document["summary"]["failed"] == 0);
    CHECK(world.compiles() == 2);
    CHECK(service->stats().compile_failures == 0);
}

}  // namespace xqajit
