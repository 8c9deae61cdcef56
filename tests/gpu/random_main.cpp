// Random legal launches over the whole contract, on each family that serves them, each against the float64 reference, with NaN wherever nothing may be read.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "gpu/arguments.h"
#include "gpu/problem.h"
#include "gpu/report.h"
#include "gpu/shape_text.h"
#include "reference/codec.h"

namespace {

using namespace xqajit;
using namespace xqajit::testing;

constexpr char kUsage[] =
    "usage: xqajit_gpu_random [--count N] [--seed S] [--per-kernel N | --kernels N] [--family NAME] [--threads N]\n"
    "                         [--json FILE] [--verbose]\n"
    "  --count N       launches (default 400)\n"
    "  --seed S        of the first; launch n has seed S + n (default 1)\n"
    "  --per-kernel N  launches that share a shape: seeds N*m .. N*m + N-1 (default 4)\n"
    "  --kernels N     at least N distinct kernels: the largest --per-kernel that draws so many\n"
    "  --family NAME   all on gmma, hmma or mmha: what it refuses is passed over, and later seeds take its place\n"
    "  --threads N     launches prepared and checked at once (default: one a core); with 1 a fault of the device names its launch\n"
    "  --verbose       a line for each launch\n"
    "exit status: 0 all passed, 1 some failed, 2 usage, 3 no GPU";

// Of the kernel that the library runs for a shape, by its own explanation.
struct KernelFacts {
    std::string key;  // the same for launches that share compiled code
    std::string family;
    std::uint32_t m_tile = 0;
};

class KernelBook {
public:
    Result<KernelFacts> find(Gpu const& gpu, xqajit_params params) {
        // Neither a window's length nor the division of the work is compiled in.
        params.sliding_window = params.sliding_window != 0;
        params.division = XQAJIT_DIVISION_DEFAULT;
        params.nb_sub_seq = 0;
        auto const [entry, is_new] = known_.try_emplace({gpu.service(), shape_json(params)});
        if (!is_new) return entry->second;
        char* text = nullptr;
        XQAJIT_RETURN_IF_ERROR(api(xqajit_explain(gpu.service(), &params, nullptr, 1, 1, &text)));
        nlohmann::json const document = nlohmann::json::parse(text);
        xqajit_free(text);
        if (document.contains("spec"))
            entry->second = {document.at("key").at("body"), document.at("spec").at("family"), document.at("spec").at("m_tile")};
        return entry->second;
    }

private:
    std::map<std::pair<xqajit_service*, std::string>, KernelFacts> known_;
};

struct Drawn {
    std::uint64_t seed = 0;
    RandomLaunch launch;
    KernelFacts kernel;
};

// The launches of one forced family, which needs a service of its own; of the last group the library's choice, with what the forced ones
// do not serve.
struct Group {
    std::string family;
    std::unique_ptr<Gpu> gpu;
    std::vector<Drawn> launches;
    std::promise<void> prewarmed;
};
constexpr std::array<char const*, 4> kGroupFamilies = {"gmma", "hmma", "mmha", ""};
using Groups = std::array<Group, kGroupFamilies.size()>;

struct Range {
    std::uint64_t count = 0;
    std::uint64_t seed = 0;
    std::uint64_t per_kernel = 1;
    std::string family;  // empty: each launch on the one that it draws
};

std::string reproduce_line(Group const& group, Drawn const& drawn, std::uint64_t per_kernel) {
    RandomLaunch const& launch = drawn.launch;
    return fmt::format("--seed {} --count 1 --per-kernel {} | {}{}{}{}", drawn.seed, per_kernel, to_string(launch.spec),
                       launch.max_len ? fmt::format(" max_len {}", launch.max_len) : "",
                       launch.device_scales ? " device-scales" : "", group.family.empty() ? "" : " on " + group.family);
}

// Fills the groups; returns how many distinct kernels their launches run.
Result<std::size_t> draw(Groups& groups, KernelBook& book, Range const& range) {
    std::set<std::string> keys;
    for (Group& group : groups) group.launches.clear();
    std::uint64_t drawn = 0;
    for (std::uint64_t seed = range.seed; drawn < range.count; ++seed) {
        constexpr std::uint64_t kMostPassedOver = 1000;
        if (seed - range.seed >= (drawn + 1) * kMostPassedOver)
            return Status(XQAJIT_UNSUPPORTED, fmt::format("--family is {}: it serves none of the first {} launches from seed {} on",
                                                          range.family, seed - range.seed, range.seed));
        RandomLaunch launch = random_launch(seed / range.per_kernel, seed);
        if (!range.family.empty()) launch.family = range.family.c_str();
        xqajit_params const& params = launch.spec.params;
        auto const serves = [&](Group const& candidate) {
            return launch.family == candidate.family && xqajit_supports(candidate.gpu->service(), &params, nullptr) == XQAJIT_OK;
        };
        // What no family appends for is launched without that.
        if (params.input_kv && std::ranges::none_of(groups, serves)) launch.drop_append();
        auto const group =
            std::ranges::find_if(groups, [&](Group const& candidate) { return candidate.family.empty() || serves(candidate); });
        if (!range.family.empty() && group->family != range.family) continue;
        Result<KernelFacts> kernel = book.find(*group->gpu, params);
        if (!kernel.ok()) return kernel.status();
        keys.insert(kernel->key);
        group->launches.push_back({seed, std::move(launch), std::move(*kernel)});
        ++drawn;
    }
    keys.erase("");  // of shapes that are refused
    return keys.size();
}

// The largest number of launches a shape with which at least `wanted` kernels are drawn.
Status draw_kernels(Groups& groups, KernelBook& book, Range& range, std::uint64_t wanted) {
    for (range.per_kernel = std::max<std::uint64_t>(1, range.count / wanted);; --range.per_kernel) {
        Result<std::size_t> const kernels = draw(groups, book, range);
        if (!kernels.ok()) return kernels.status();
        if (*kernels >= wanted) return {};
        if (range.per_kernel == 1)
            return {
                XQAJIT_INVALID_ARGUMENT,
                fmt::format("--kernels is {}: {} launches from seed {} on draw {} distinct kernels; accepted is at most as many",
                            wanted, range.count, range.seed, *kernels)};
    }
}

// One group after the other, each kernel on any core: the launches of a group start while the next one's kernels compile.
void prewarm(Groups& groups) {
    for (Group& group : groups) {
        auto const start = std::chrono::steady_clock::now();
        std::vector<xqajit_params> shapes;
        for (Drawn const& drawn : group.launches) shapes.push_back(drawn.launch.spec.params);
        Status const status = group.gpu->prewarm(shapes);
        fmt::print("prewarm {}: {:.1f} s{}\n", group.family.empty() ? "of the library's choice" : group.family,
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                   status.ok() ? "" : ", " + status.to_string());
        std::fflush(stdout);
        group.prewarmed.set_value();
    }
}

Verdict check(Group const& group, Drawn const& drawn) {
    LaunchOptions options;
    options.max_len = drawn.launch.max_len;
    options.device_scales = drawn.launch.device_scales;
    options.reference_threads = 1;
    Verdict verdict = run_and_check(*group.gpu, build_case(drawn.launch.spec), options);
    verdict.outputs = {};
    return verdict;
}

void tally(Report& report, Drawn const& drawn, Verdict const& verdict) {
    constexpr char const* kSpecDecs[] = {"none", "linear", "tree"};
    constexpr char const* kDivisions[] = {"default", "static", "balanced", "invariant"};
    constexpr char const* kRopeStyles[] = {"without rotation", "neox", "gptj"};
    xqajit_params const params = with_defaults(drawn.launch.spec.params);
    report.tally("family", drawn.kernel.family);
    report.tally("kv_dtype", name_of(params.kv_dtype));
    report.tally("m_tile", std::to_string(drawn.kernel.m_tile));
    report.tally("spec_dec", kSpecDecs[params.spec_dec]);
    report.tally("division", kDivisions[params.division]);
    report.tally("input_kv", params.input_kv ? kRopeStyles[params.rope_style] : "off");
    report.tally("repeats", verdict.repeated ? "compared bit for bit" : "not made");
}

// Runs the launches of all groups, each on any of the threads from its draw to its comparison; reports them in their order.
class Runner {
public:
    Runner(Groups& groups, Report& report, std::uint64_t per_kernel, bool verbose)
        : report_(report), per_kernel_(per_kernel), verbose_(verbose) {
        for (Group& group : groups) {
            std::shared_future<void> const prewarmed = group.prewarmed.get_future().share();
            for (Drawn const& drawn : group.launches) items_.push_back({&group, &drawn, prewarmed, {}});
        }
    }

    void run(std::size_t threads) {
        std::vector<std::jthread> pool;
        for (std::size_t n = 0; n < std::min(threads, items_.size()); ++n) pool.emplace_back([this] { work(); });
    }
    std::size_t kernels() const { return kernels_.size(); }

private:
    struct Item {
        Group const* group;
        Drawn const* drawn;
        std::shared_future<void> prewarmed;
        std::optional<Verdict> verdict;
    };

    void work() {
        for (std::size_t n = next_++; n < items_.size(); n = next_++) {
            Item& item = items_[n];
            item.prewarmed.wait();
            Verdict verdict;
            Result<driver::ScopedContext> const context = driver::ScopedContext::enter(item.group->gpu->context().info().context);
            if (context.ok())
                verdict = check(*item.group, *item.drawn);
            else
                verdict.text = context.status().to_string();
            std::lock_guard const lock(mutex_);
            item.verdict = std::move(verdict);
            while (reported_ < items_.size() && items_[reported_].verdict) report(items_[reported_++]);
        }
    }

    void report(Item& item) {
        Verdict const& verdict = *item.verdict;
        std::string const line = reproduce_line(*item.group, *item.drawn, per_kernel_);
        if (verbose_) fmt::print("{} {}\n", verdict.comparison.summary(), line);
        report_.add(verdict, fmt::format("seed {}", item.drawn->seed), line);
        if (verdict.refused) return;
        tally(report_, *item.drawn, verdict);
        kernels_.insert(item.drawn->kernel.key);
    }

    Report& report_;
    std::uint64_t per_kernel_;
    bool verbose_;
    std::vector<Item> items_;
    std::atomic<std::size_t> next_{0};
    std::mutex mutex_;  // of what follows, and of the verdicts
    std::size_t reported_ = 0;
    std::set<std::string> kernels_;
};

int run(Arguments& arguments, int argc, char** argv) {
    Range range{arguments.number("--count", 400), arguments.number("--seed", 1),
                std::max<std::uint64_t>(1, arguments.number("--per-kernel", 4)), arguments.text("--family")};
    std::uint64_t const wanted = arguments.number("--kernels", 0);
    std::uint64_t const threads = std::max<std::uint64_t>(1, arguments.number("--threads", std::thread::hardware_concurrency()));
    if (wanted && arguments.has("--per-kernel")) arguments.fail("--kernels chooses --per-kernel: accepted is one of the two");
    if (!range.family.empty() && std::ranges::find(kGroupFamilies, range.family) == kGroupFamilies.end())
        arguments.fail("--family is " + range.family + ": accepted are gmma, hmma and mmha");
    if (!arguments.ok()) return 2;

    Groups groups;
    for (std::size_t n = 0; n < groups.size(); ++n) {
        groups[n].family = kGroupFamilies[n];
        Result<std::unique_ptr<Gpu>> gpu = Gpu::open(groups[n].family);
        if (!gpu.ok()) {
            std::fprintf(stderr, "%s\n", gpu.status().to_string().c_str());
            return 3;
        }
        groups[n].gpu = std::move(*gpu);
    }
    KernelBook book;
    Status const drawn = wanted ? draw_kernels(groups, book, range, wanted) : draw(groups, book, range).status();
    if (!drawn.ok()) {
        std::fprintf(stderr, "%s\n", drawn.to_string().c_str());
        return drawn.code() == XQAJIT_INVALID_ARGUMENT ? 2 : 1;
    }

    Report report("xqajit_gpu_random", argc, argv, *groups.back().gpu);
    auto const start = std::chrono::steady_clock::now();
    Runner runner(groups, report, range.per_kernel, arguments.has("--verbose"));
    {
        std::jthread const compiling([&] { prewarm(groups); });
        runner.run(threads);
    }
    double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report.document()["kernels"] = runner.kernels();
    report.document()["per_kernel"] = range.per_kernel;
    report.document()["threads"] = threads;
    report.document()["seconds"] = seconds;
    fmt::print("{} launches of {} distinct kernels, {} a shape, {} threads: {:.1f} s\n", range.count, runner.kernels(),
               range.per_kernel, threads, seconds);
    return report.finish(arguments.text("--json"));
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments(argc, argv, {"--count", "--seed", "--per-kernel", "--kernels", "--family", "--threads", "--json"},
                        {"--verbose"}, kUsage);
    if (arguments.ok() && !arguments.positional().empty()) arguments.fail("unexpected word " + arguments.positional().front());
    return arguments.ok() ? run(arguments, argc, argv) : 2;
}
