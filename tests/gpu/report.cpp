#include "gpu/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "driver/cuda_functions.h"

namespace xqajit::testing {

Report::Report(char const* program, int argc, char** argv, Gpu const& gpu) {
    std::string command = program;
    for (int n = 1; n < argc; ++n) command += std::string(" ") + argv[n];
    driver::ContextInfo const& info = gpu.context().info();
    Result<driver::CudaLibrary const*> const cuda = driver::open_cuda();
    document_ = {{"schema", "xqajit.gpu-test/1"},
                 {"command", command},
                 {"gpu", info.device_name},
                 {"gpu_uuid", info.device_uuid},
                 {"driver", cuda.ok() ? driver::driver_version_text((*cuda)->version) : ""},
                 {"version", xqajit_version()},
                 {"failures", nlohmann::json::array()}};
}

void Report::add(Verdict const& verdict, std::string const& name, std::string const& line) {
    worst_.merge(verdict.comparison);
    if (verdict.ok) {
        ++passed_;
        return;
    }
    if (verdict.refused) {
        ++skipped_;
        fmt::print("skipped {}: {}\n", name, verdict.text);
        return;
    }
    ++failed_;
    fmt::print("FAILED {}: {}\n  {}\n", name, verdict.text, line);
    std::fflush(stdout);
    document_["failures"].push_back({{"name", name}, {"text", verdict.text}, {"reproduce", line}});
}

int Report::finish(std::string const& path) {
    document_["passed"] = passed_;
    document_["failed"] = failed_;
    document_["skipped"] = skipped_;
    document_["worst"] = {{"rel_l2", worst_.rel_l2},       {"max_ratio", worst_.max_ratio}, {"lse", worst_.lse_error},
                          {"fp8_steps", worst_.fp8_steps}, {"of_bound", worst_.of_bound},   {"blocks", worst_.blocks}};
    if (!launches_.empty()) document_["launches"] = launches_;
    for (auto const& [property, values] : launches_) {
        fmt::print("{}:", property);
        for (auto const& [value, count] : values) fmt::print(" {}={}", value, count);
        fmt::print("\n");
    }
    if (Status const status = write_json(path, document_); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.message().c_str());
        ++failed_;
    }
    fmt::print("worst: {}, {:.2f} of its bound\n{} passed, {} failed, {} skipped\n", worst_.summary(), worst_.of_bound, passed_,
               failed_, skipped_);
    if (passed_ == 0) fmt::print("FAILED: nothing passed\n");
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
}

Status write_json(std::string const& path, nlohmann::json const& document) {
    if (path.empty()) return {};
    std::ofstream file(path);
    file << document.dump(1) << "\n";
    return file.flush() ? Status() : Status(XQAJIT_UNAVAILABLE, fmt::format("{}: cannot be written", path));
}

}  // namespace xqajit::testing
