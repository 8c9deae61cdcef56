// xqajit run: one shape on random data, timed in graph replays against a kernel that only reads as many bytes.
#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "timed_launch.h"
#include "tools/measure/read_roofline.h"

namespace xqajit::cli {
namespace {

// GB/s of a kernel that only reads, over as many bytes in as many copies. UNAVAILABLE without NVRTC, which a cached kernel does not need.
Result<double> read_bandwidth(testing::Gpu const& gpu, std::uint64_t bytes, int copies) {
    if (bytes == 0) return unavailable("nothing is read");
    Result<measure::ReadRoofline> const roofline = measure::ReadRoofline::compile(gpu.context());
    if (!roofline.ok()) return roofline.status();
    Result<measure::Timing> const timing = roofline->measure(gpu.context(), gpu.stream(), bytes, copies);
    if (!timing.ok()) return timing.status();
    return gb_per_s(bytes, timing->us);
}

nlohmann::ordered_json check_json(testing::Comparison const& comparison, std::size_t all_blocks) {
    return {{"ok", comparison.ok},
            {"text", comparison.text},
            {"rel_l2", comparison.rel_l2},
            {"max_ratio", comparison.max_ratio},
            {"lse_error", comparison.lse_error},
            {"fp8_steps", comparison.fp8_steps},
            {"blocks", comparison.blocks},
            {"all_blocks", all_blocks}};
}

}  // namespace

int run(RunOptions const& options) {
    xqajit_params const params = shape_of(options.flags);
    if (!options.cache_dir.empty()) ::setenv("XQAJIT_CACHE_DIR", options.cache_dir.c_str(), 1);
    std::unique_ptr<testing::Gpu> const gpu = value_of(testing::Gpu::open());
    std::vector<std::int32_t> const lens(options.batch, static_cast<std::int32_t>(options.seq_len));
    std::uint64_t const bytes = kv_bytes(params, lens);
    std::optional<TimedLaunch> launch(std::in_place, *gpu, params, lens);

    std::string const device = gpu->context().info().device_name;
    nlohmann::ordered_json document = {
        {"schema", "xqajit.run/1"}, {"gpu", device}, {"batch", options.batch}, {"seq_len", options.seq_len}};
    bool ok = true;
    std::string checked;
    if (options.check) {
        testing::Comparison const comparison = launch->compare();
        std::size_t const all = launch->all_blocks();
        document["check"] = check_json(comparison, all);
        ok = comparison.ok;
        checked = fmt::format("{} against float64: {} of {} (request, kv head) blocks{}", comparison.summary(), comparison.blocks,
                              all, ok ? "" : "\n" + comparison.text);
    }

    measure::Timing const timing = launch->time();
    int const copies = launch->copies();
    launch.reset();  // makes room for as many bytes to read
    Result<double> const read = read_bandwidth(*gpu, bytes, copies);
    double const rate = gb_per_s(bytes, timing.us);
    double const percent = read.ok() && *read > 0 ? 100 * rate / *read : 0;
    document["us"] = timing.us;
    document["us_min"] = timing.min_us;
    document["us_max"] = timing.max_us;
    document["copies"] = copies;
    document["kv_bytes"] = bytes;
    document["gb_per_s"] = rate;
    if (read.ok()) {
        document["read_gb_per_s"] = *read;
        document["percent_of_read"] = percent;
    } else {
        document["read_reason"] = read.status().message();
    }

    if (options.json) {
        print(to_text(document, 1));
    } else {
        print(fmt::format("{}, batch {}, length {}: {:.1f} us, {:.0f} GB/s of KV ({}), {}", device, options.batch, options.seq_len,
                          timing.us, rate, human_bytes(bytes),
                          read.ok() ? fmt::format("{:.0f}% of a plain read's {:.0f} GB/s", percent, *read)
                                    : "no plain read to compare with: " + read.status().message()));
        if (options.check) print((ok ? "check passed: " : "check FAILED: ") + checked);
    }
    if (!ok) print_error("the output differs from the reference");
    return ok ? kDone : kFailed;
}

}  // namespace xqajit::cli
