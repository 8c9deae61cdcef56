// The kernels of a shape list are all that its shapes' launches need, and a record of launches is such a list.
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "params/shape_list.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

constexpr std::uint32_t kMostRequests = 65536;
constexpr std::uint32_t kMostPages = 1u << 16;
constexpr std::uint32_t kMostSubSequences = 16;
constexpr std::uint64_t kWorkspaceBytes = 256u << 20;

// Divisions whose workspace grows with the batch, and the one whose workspace grows with the length too, get less of both.
std::uint32_t most_requests(XQAParams const& params) {
    bool const balanced = params.division == XQAJIT_DIVISION_BALANCED || params.division == XQAJIT_DIVISION_DEFAULT;
    return balanced && params.nb_sub_seq == 0 ? kMostRequests : 8;
}
std::uint32_t most_pages(XQAParams const& params) { return params.division == XQAJIT_DIVISION_INVARIANT ? 16 : kMostPages; }
std::uint32_t page_tokens(XQAParams const& params) { return params.page_size != 0 ? params.page_size : 64; }

// What the bundled models leave out: drafts, beams, contiguous KV, features.
constexpr char kMore[] =
    R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128}, "shapes": [
  {"spec_dec": ["linear", "tree"], "q_len": [4, 40], "page_size": 32},
  {"beam_width": 4, "page_size": 64}, {"page_size": 0},
  {"lse": 1, "sinks": 1, "softcap": 30, "sliding_window": [0, 512], "page_size": [16, 128], "kv_dtype": ["bf16", "fp8_e4m3"]}]})";

struct Model {
    XQAParams params;
    Launch launch;  // of the most that a call has
};

void prewarm(World const& world, std::string const& list, char const* arch) {
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = arch;
    require_ok(must(world.service()->prewarm(list, options)).status);
}

std::vector<Model> models_of(Service& service, std::string const& list) {
    std::vector<Model> models;
    for (ShapeEntry const& entry : must(parse_shape_list(list))) {
        Model model{entry.params, Launch(entry.params, kMostRequests)};
        if (models.empty()) {
            model.launch.add_workspace(service, kWorkspaceBytes);
        } else {  // one serves them all
            model.launch.args.workspace = models.front().launch.args.workspace;
            model.launch.args.workspace_size = kWorkspaceBytes;
        }
        models.push_back(std::move(model));
    }
    return models;
}

// Launches of the models with everything drawn that is no part of what a list prewarms.
class RandomCalls {
public:
    explicit RandomCalls(std::uint32_t seed) : random_(seed) {}

    void run(Service& service, std::vector<Model>& models) {
        Model& model = models[below(static_cast<std::uint32_t>(models.size()))];
        XQAParams params = model.params;
        params.division = static_cast<std::int32_t>(below(4));
        bool const is_static = params.division == XQAJIT_DIVISION_DEFAULT || params.division == XQAJIT_DIVISION_STATIC;
        params.nb_sub_seq = is_static && below(2) == 0 ? 1 + below(kMostSubSequences) : 0;
        params.pdl = static_cast<std::int32_t>(below(2));
        if (params.sliding_window != 0) params.sliding_window = 1 + below(4096);
        if (params.softcap != 0) params.softcap = static_cast<float>(1 + below(100));
        params.qk_scale = 0.01f * static_cast<float>(1 + below(100));
        RunArgs args = model.launch.args;
        args.batch = of_any_size(most_requests(params));
        args.q_len = 1 + below(params.q_len);
        std::uint32_t const pages = 1 + of_any_size(most_pages(params) - 1);
        std::uint32_t const held = pages * page_tokens(params);
        if (params.page_size != 0) args.max_pages = pages;
        if (params.page_size == 0 || params.beam_width > 1) args.capacity = held;
        args.max_len = of_any_size(held);  // 0: what is held
        INFO(to_string(params) << ", division " << params.division << ", batch " << args.batch << ", length " << args.max_len);
        require_ok(service.run(params, args, nullptr));
    }

private:
    std::uint32_t below(std::uint32_t bound) { return std::uniform_int_distribution<std::uint32_t>(0, bound - 1)(random_); }
    // 0..most, small ones as often as large ones.
    std::uint32_t of_any_size(std::uint32_t most) { return below(std::min(most, 1u << below(32)) + 1); }
    std::mt19937 random_;
};

struct Case {
    char const* device;
    char const* arch;
    char const* gate;
};

}  // namespace

TEST_CASE("after a list is prewarmed no launch of its shapes compiles, whatever its batch, length, division and pdl",
          "[service][P07]") {
    constexpr int kCalls = 2500;
    for (Case const& at : {Case{"9.0", "sm_90a", "reference"}, Case{"8.0", "sm_80", "off"}}) {
        INFO(at.arch);
        World world;
        world.cuda().set_devices(at.device);
        world.set("XQAJIT_PERF_GATE", at.gate);
        world.enter(0);
        std::string const lists[] = {world.read(MODELS), kMore};
        for (std::string const& list : lists) prewarm(world, list, at.arch);
        std::size_t const compiled = world.compiles();
        CHECK(compiled > 50);
        auto const service = world.service();
        RandomCalls calls(7);
        for (std::string const& list : lists) {
            std::vector<Model> models = models_of(*service, list);
            for (int call = 0; call < kCalls; ++call) calls.run(*service, models);
        }
        CHECK(world.compiles() == compiled);
        CHECK(service->stats().compiles == 0);
        CHECK(service->stats().misses == 0);
        CHECK(service->stats().launches > 2 * kCalls * 3 / 4);  // all but those of no request
        CHECK(world.logged("compiled in").size() == compiled);
        // One that is not on the list is a compile, and one line with its key and its time.
        XQAParams other = plain_params();
        other.head_dim = 48;
        Launch unlisted(other, 1, 1);
        unlisted.add_workspace(*service);
        require_ok(service->run(unlisted.params, unlisted.args, nullptr));
        std::size_t const more = world.compiles() - compiled;
        CHECK(more == (at.gate == std::string("reference") ? 2 : 1));
        CHECK(service->stats().misses == more);
        std::vector<std::string> const lines = world.logged("compiled in");
        REQUIRE(lines.size() == compiled + more);
        CHECK(contains(lines.back(), " ms, "));
        std::size_t keys = 0;
        for (std::string const& file : world.cache_files())
            keys += contains(lines.back(), " " + file.substr(world.cache_dir().size() + 4, 12) + ":");
        CHECK(keys == 1);
    }
}

TEST_CASE("what one process records another machine prewarms, and the same launches compile nothing", "[service][P07]") {
    World world;
    world.cuda().set_devices("9.0");
    world.enter(0);
    std::string const record = world.folder() + "/record.json";
    world.set("XQAJIT_RECORD_SHAPES", record);
    auto const replay = [&] {
        auto const service = world.service();
        std::vector<Model> models = models_of(*service, kMore);
        RandomCalls calls(11);
        for (int call = 0; call < 300; ++call) calls.run(*service, models);
        return service->stats();
    };
    std::size_t const kernels = replay().compiles;
    CHECK(kernels == world.compiles());
    CHECK(kernels > 10);
    world.set("XQAJIT_RECORD_SHAPES", "");
    world.set("XQAJIT_CACHE_DIR", world.folder() + "/other");
    prewarm(world, world.read(record), "sm_90a");
    CHECK(world.compiles() == 2 * kernels);
    world.set("XQAJIT_NVRTC_PATH", "/nowhere");  // nothing could be compiled
    xqajit_stats const stats = replay();
    CHECK(stats.misses == 0);
    CHECK(stats.disk_hits == kernels);
}

}  // namespace xqajit
