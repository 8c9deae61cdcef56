// Every entry of a shape list in each of its types, at several batches and lengths, each against the float64 reference.
#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "gpu/arguments.h"
#include "gpu/problem.h"
#include "gpu/report.h"
#include "reference/codec.h"

namespace {

using namespace xqajit;
using namespace xqajit::testing;

constexpr char kUsage[] =
    "usage: xqajit_gpu_models [--shapes FILE] [--name PART] [--max-batch N] [--json FILE] [--verbose]\n"
    "  --shapes FILE  a shape list (default tools/shapes/models.json)\n"
    "  --name PART    only entries whose name contains it\n"
    "exit status: 0 all passed, 1 some failed, 2 usage, 3 no GPU";

constexpr std::uint32_t kBatches[] = {1, 7, 64};
constexpr std::int32_t kLens[] = {1, 33, 1000, 8192};
// A pool as large as the biggest batch needs would take host memory and time and test nothing more: requests share random pages.
constexpr std::uint64_t kPoolBytes = 6 << 20;
constexpr std::size_t kBlocks = 4;

struct Entry {
    std::string name;
    xqajit_params params;
};

Result<std::vector<Entry>> read_entries(Gpu const& gpu, std::string const& path, std::string const& part) {
    std::ifstream file(path);
    std::string const text(std::istreambuf_iterator<char>(file), {});
    if (text.empty()) return unavailable(fmt::format("{}: cannot be read", path));
    char* json = nullptr;
    XQAJIT_RETURN_IF_ERROR(api(xqajit_parse_shapes(gpu.service(), text.c_str(), &json)));
    nlohmann::json const document = nlohmann::json::parse(json);
    xqajit_free(json);
    std::vector<Entry> entries;
    for (nlohmann::json const& item : document.at("entries")) {
        Entry entry{item.value("name", ""), XQAJIT_PARAMS_INIT};
        XQAJIT_RETURN_IF_ERROR(api(xqajit_params_from_json(item.at("params").dump().c_str(), &entry.params)));
        if (entry.name.find(part) != std::string::npos) entries.push_back(std::move(entry));
    }
    return entries;
}

ProblemSpec spec_of(xqajit_params const& params, std::uint32_t batch, std::int32_t len) {
    ProblemSpec spec;
    spec.params = params;
    spec.lens.assign(batch, len);
    spec.layout = Layout::kHnd;
    spec.seed = batch * 100003ULL + static_cast<std::uint64_t>(len);
    std::uint64_t const token_bytes = std::uint64_t{params.num_kv_heads} * params.head_dim * bytes_of(params.kv_dtype);
    if (params.page_size) spec.max_pool_pages = std::max<std::uint64_t>(4, kPoolBytes / (token_bytes * params.page_size));
    if (params.kv_dtype == XQAJIT_DTYPE_INT8) spec.k_scale = 0.03F, spec.v_scale = 0.025F;
    if (params.kv_dtype == XQAJIT_DTYPE_FP8_E4M3) spec.k_scale = 0.5F, spec.v_scale = 0.25F;
    return spec;
}

int run(Arguments& arguments, int argc, char** argv) {
    std::uint64_t const max_batch = arguments.number("--max-batch", 64);
    if (!arguments.ok()) return 2;
    Result<std::unique_ptr<Gpu>> gpu = Gpu::open();
    if (!gpu.ok()) {
        std::fprintf(stderr, "%s\n", gpu.status().to_string().c_str());
        return 3;
    }
    Result<std::vector<Entry>> const entries =
        read_entries(**gpu, arguments.text("--shapes", "tools/shapes/models.json"), arguments.text("--name"));
    if (!entries.ok()) {
        std::fprintf(stderr, "%s\n", entries.status().to_string().c_str());
        return 2;
    }
    std::vector<xqajit_params> shapes;
    for (Entry const& entry : *entries) shapes.push_back(with_defaults(entry.params));
    if (Status const status = (*gpu)->prewarm(shapes); !status.ok()) fmt::print("prewarm: {}\n", status.to_string());

    Report report("xqajit_gpu_models", argc, argv, **gpu);
    report.document()["entries"] = entries->size();
    for (std::size_t n = 0; n < shapes.size(); ++n)
        for (std::uint32_t const batch : kBatches)
            for (std::int32_t const len : kLens) {
                if (batch > max_batch) continue;
                ProblemSpec const spec = spec_of(shapes[n], batch, len);
                ReferenceCase const c = build_case(spec);
                // A few blocks in different requests and heads, first and last among them.
                std::vector<Block> const all = all_blocks(c);
                std::vector<Block> blocks;
                for (std::size_t b = 0; b < std::min(kBlocks, all.size()); ++b)
                    blocks.push_back(all[b * (all.size() - 1) / std::max<std::size_t>(1, std::min(kBlocks, all.size()) - 1)]);
                Verdict const verdict = run_and_check(**gpu, c, {}, blocks);
                std::string const name =
                    fmt::format("{} {} batch {} len {}", (*entries)[n].name, name_of(c.params.kv_dtype), batch, len);
                if (arguments.has("--verbose")) fmt::print("{}: {}\n", name, verdict.comparison.summary());
                report.add(verdict, name, to_string(spec));
            }
    return report.finish(arguments.text("--json"));
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments(argc, argv, {"--shapes", "--name", "--max-batch", "--json"}, {"--verbose"}, kUsage);
    if (arguments.ok() && !arguments.positional().empty()) arguments.fail("unexpected word " + arguments.positional().front());
    return arguments.ok() ? run(arguments, argc, argv) : 2;
}
