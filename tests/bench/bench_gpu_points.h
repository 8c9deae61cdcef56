// The measured points of xqajit_bench_gpu.
#pragma once

#include <string>
#include <vector>

#include "gpu/gpu.h"

namespace xqajit::bench {

struct Point {
    std::string name;
    xqajit_params params;
    std::uint32_t batch;
    std::uint32_t len;
};

// KV, tables and outputs of one point, in as many copies as it takes to pass the L2 several times over.
class PointBuffers {
public:
    static Result<PointBuffers> make(testing::Gpu const& gpu, Point const& point, std::uint64_t l2_bytes);

    std::uint64_t kv_bytes() const { return kv_bytes_; }  // read by one launch
    int copies() const { return static_cast<int>(args_.size()); }
    Status launch(testing::Gpu const& gpu, int n) const;
    xqajit_params const& params() const { return params_; }
    xqajit_run_args const& args(int n) const { return args_[static_cast<std::size_t>(n) % args_.size()]; }

private:
    xqajit_params params_{};
    std::uint64_t kv_bytes_ = 0;
    std::vector<driver::DeviceBuffer> buffers_;
    std::vector<xqajit_run_args> args_;
};

// Host time of a warm run() and of a bare cuLaunchKernelEx of the kernel it launches, in ns.
struct HostCost {
    double run_ns = 0;
    double bare_ns = 0;
    int launches = 0;
};
Result<HostCost> measure_host_cost(testing::Gpu const& gpu);

}  // namespace xqajit::bench
