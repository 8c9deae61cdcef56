// Random legal launches over the whole contract, on each family that serves them, each against the float64 reference, with NaN wherever nothing may be read.
#include <fmt/format.h>

#include <algorithm>

#include "gpu/arguments.h"
#include "gpu/problem.h"
#include "gpu/report.h"

namespace {

using namespace xqajit;
using namespace xqajit::testing;

constexpr char kUsage[] =
    "usage: xqajit_gpu_random [--count N] [--seed S] [--per-kernel N] [--json FILE] [--verbose]\n"
    "  --count N       launches (default 400)\n"
    "  --seed S        of the first; launch n has seed S + n (default 1)\n"
    "  --per-kernel N  launches that share a kernel: seeds N*m .. N*m + N-1 (default 4)\n"
    "  --verbose       a line for each launch\n"
    "exit status: 0 all passed, 1 some failed, 2 usage, 3 no GPU";

// Kernels compiled ahead in one go by the library's workers.
constexpr std::uint64_t kBatch = 256;

struct Seeded {
    std::uint64_t seed;
    RandomLaunch launch;
};

int run(Arguments& arguments, int argc, char** argv) {
    std::uint64_t const count = arguments.number("--count", 400);
    std::uint64_t const seed = arguments.number("--seed", 1);
    std::uint64_t const per_kernel = std::max<std::uint64_t>(1, arguments.number("--per-kernel", 4));
    if (!arguments.ok()) return 2;
    Result<std::unique_ptr<Gpu>> gpu = Gpu::open();
    if (!gpu.ok()) {
        std::fprintf(stderr, "%s\n", gpu.status().to_string().c_str());
        return 3;
    }
    Report report("xqajit_gpu_random", argc, argv, **gpu);
    for (std::uint64_t done = 0; done < count; done += kBatch) {
        std::vector<Seeded> waiting;
        for (std::uint64_t n = done; n < std::min(count, done + kBatch); ++n)
            waiting.push_back({seed + n, random_launch((seed + n) / per_kernel, seed + n)});
        // A family at a time, as each needs a service of its own; last the library's choice, with what the forced one does not serve.
        for (std::string const family : {"hmma", "mmha", ""}) {
            if (Status const status = (*gpu)->force(family); !status.ok()) {
                std::fprintf(stderr, "%s\n", status.to_string().c_str());
                return 1;
            }
            auto const later = std::stable_partition(waiting.begin(), waiting.end(), [&](Seeded const& seeded) {
                if (family.empty()) return true;
                xqajit_params const& params = seeded.launch.spec.params;
                return seeded.launch.family == family && xqajit_supports((*gpu)->service(), &params, nullptr) == XQAJIT_OK;
            });
            std::vector<Seeded> const now(waiting.begin(), later);
            waiting.erase(waiting.begin(), later);
            std::vector<xqajit_params> shapes;
            for (Seeded const& seeded : now) shapes.push_back(seeded.launch.spec.params);
            if (Status const status = (*gpu)->prewarm(shapes); !status.ok()) fmt::print("prewarm: {}\n", status.to_string());
            for (auto const& [launch_seed, launch] : now) {
                std::string const line =
                    fmt::format("--seed {} --count 1 --per-kernel {} | {}{}{}{}", launch_seed, per_kernel, to_string(launch.spec),
                                launch.max_len ? fmt::format(" max_len {}", launch.max_len) : "",
                                launch.device_scales ? " device-scales" : "", family.empty() ? "" : " on " + family);
                LaunchOptions options;
                options.max_len = launch.max_len;
                options.device_scales = launch.device_scales;
                Verdict const verdict = run_and_check(**gpu, build_case(launch.spec), options);
                if (arguments.has("--verbose")) fmt::print("{} {}\n", verdict.comparison.summary(), line);
                report.add(verdict, fmt::format("seed {}", launch_seed), line);
            }
        }
    }
    return report.finish(arguments.text("--json"));
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments(argc, argv, {"--count", "--seed", "--per-kernel", "--json"}, {"--verbose"}, kUsage);
    if (arguments.ok() && !arguments.positional().empty()) arguments.fail("unexpected word " + arguments.positional().front());
    return arguments.ok() ? run(arguments, argc, argv) : 2;
}
