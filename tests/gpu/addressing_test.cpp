// Where K and V lie: strides of every kind, and pools past what 16 and 32 bits count.
#include <numeric>

#include "gpu/fixture.h"
#include "reference/codec.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

std::int64_t host_pages(ReferenceCase const& c) {
    return static_cast<std::int64_t>(c.k.pool->size()) / bytes_of(c.params.kv_dtype) / c.k.stride_page;
}

// Odd pages of the host's pool lie from `far` on, even ones at the front: one request reads both.
Placement near_and_far(ReferenceCase const& c, std::int32_t far) {
    Placement placement{c.k.stride_page, {}};
    for (std::int32_t page = 0; page < host_pages(c); ++page) placement.page_of.push_back(page % 2 ? far + page : page);
    return placement;
}

}  // namespace

TEST_CASE("a page past 2^32 elements is read where it lies", "[gpu][W10]") {
    ProblemSpec const specs[] = {
        make_mla_spec(16, XQAJIT_DTYPE_FP8_E4M3, {200, 64, 31}),
        make_spec({.q_heads = 32, .kv_heads = 8, .page = 32, .kv = XQAJIT_DTYPE_FP8_E4M3, .lens = {200, 64, 31}})};
    for (ProblemSpec const& spec : specs) {
        ReferenceCase const c = build_case(spec);
        LaunchOptions options;
        options.placement = near_and_far(c, static_cast<std::int32_t>((std::int64_t{1} << 32) / c.k.stride_page + 5));
        require_right(c, to_string(spec), options);
    }
}

TEST_CASE("contiguous sequences 2^30 elements apart each read their own", "[gpu][W12]") {
    for (std::uint32_t const beam : {1U, 2U}) {
        ProblemSpec spec =
            make_spec({.q_heads = 32, .kv_heads = 32, .page = 0, .lens = beam == 1 ? std::vector{2, 3, 3} : std::vector{3, 2}});
        spec.params.beam_width = beam;
        ReferenceCase const c = build_case(spec);
        LaunchOptions options;
        options.placement.stride_page = std::int64_t{1} << 30;
        require_right(c, to_string(spec), options);
    }
}

TEST_CASE("page numbers past 65535 are not cut", "[gpu][W13]") {
    ProblemSpec const spec =
        make_spec({.q_heads = 8, .kv_heads = 1, .dim = 64, .page = 16, .lens = {80, 16, 1}});  // 7 pages and 3 spare ones
    ReferenceCase const c = build_case(spec);
    REQUIRE(host_pages(c) == 10);
    LaunchOptions options;
    options.placement = {c.k.stride_page, {0, 65534, 65535, 65536, 65537, 131072, 131071, 100000, 3, 65538}};
    require_right(c, to_string(spec), options);
}

TEST_CASE("a page stride that is no power of two times a large page number stays exact", "[gpu][C04]") {
    ProblemSpec const spec = make_mla_spec(16, XQAJIT_DTYPE_DEFAULT, {500, 64, 1, 130});
    ReferenceCase const c = build_case(spec);
    LaunchOptions options;
    options.placement.stride_page = 480 * 576;
    options.placement.page_of.resize(static_cast<std::size_t>(host_pages(c)));
    std::iota(options.placement.page_of.begin(), options.placement.page_of.end(), 7766);
    require_right(c, to_string(spec), options);
}

TEST_CASE("K and V each keep the strides they are given", "[gpu][W27]") {
    for (std::uint32_t const page : {0U, 16U})
        for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
            for (Layout const layout : {Layout::kNhd, Layout::kHnd})
                for (Pooling const pooling : {Pooling::kSeparate, Pooling::kInterleaved, Pooling::kLayerMajor})
                    for (std::uint32_t const padding : {0U, 2U}) {
                        ProblemSpec spec =
                            make_spec({.q_heads = 8, .kv_heads = 2, .page = page, .kv = kv, .lens = {1, 300, 16, 95}});
                        spec.layout = layout;
                        spec.pooling = pooling;
                        spec.padding = padding;
                        spec.row_padding = padding * 8;
                        spec.own_v_table = page != 0 && padding != 0;
                        require_right(spec);
                    }
}
