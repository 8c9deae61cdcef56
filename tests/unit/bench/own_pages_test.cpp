#include <cstring>
#include <set>

#include "catch.h"
#include "gpu/device_problem.h"
#include "gpu/problem.h"

using namespace xqajit;
using namespace xqajit::testing;

TEST_CASE("requests that share pages on the host get pages of their own, with the same contents", "[bench]") {
    Result<std::unique_ptr<Gpu>> const gpu = Gpu::open();
    REQUIRE(gpu.ok());
    LaunchOptions options;
    options.own_pages = true;
    for (Pooling const pooling : {Pooling::kSeparate, Pooling::kInterleaved, Pooling::kLayerMajor})
        for (std::uint64_t const host_pages : {0, 1, 5, 11})
            for (std::uint32_t const beams : {1, 3}) {
                ProblemSpec spec;
                spec.params.q_dtype = XQAJIT_DTYPE_BF16;
                spec.params.num_q_heads = 4;
                spec.params.num_kv_heads = 2;
                spec.params.head_dim = 16;
                spec.params.page_size = 8;
                spec.params.beam_width = beams;
                spec.lens = {70, 0, 1, 64, 23};
                spec.pooling = pooling;
                spec.max_pool_pages = host_pages;
                ReferenceCase const c = build_case(spec);
                INFO("pooling " << static_cast<int>(pooling) << ", pages " << host_pages << ", beams " << beams);
                Result<DeviceProblem> const problem = DeviceProblem::upload(**gpu, c, options);
                INFO(problem.status().to_string());
                REQUIRE(problem.ok());
                std::set<std::int32_t> pages;
                std::size_t used = 0;
                for (std::size_t row = 0; row < std::size_t{c.batch} * beams; ++row)
                    for (std::int64_t n = 0; n * 8 < c.seq_lens[row / beams]; ++n) {
                        std::size_t const at = row * static_cast<std::size_t>(c.page_table_stride) + static_cast<std::size_t>(n);
                        std::int32_t const page = problem->args.page_table[at];
                        pages.insert(page);
                        ++used;
                        auto const same = [&](void const* device, KvView const& view) {
                            auto const* const own = static_cast<std::uint8_t const*>(device) + page * view.stride_page * 2;
                            std::uint8_t const* const host =
                                view.pool->data() + (view.offset + c.page_table[at] * view.stride_page) * 2;
                            return std::memcmp(own, host, 8 * 2 * 16 * 2) == 0;
                        };
                        REQUIRE(same(problem->args.k, c.k));
                        REQUIRE(same(problem->args.v, c.v));
                    }
                CHECK(pages.size() == used);
            }
}
