#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "unit/params/calls.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
}  // namespace

TEST_CASE("a plain launch of each kind is accepted", "[params][run_args]") {
    for (Call const& call : {paged(), contiguous(), mla(), fp8(), beam(), tree()}) CHECK(run(call).status().message() == "");
}

TEST_CASE("an empty batch is accepted with every pointer null", "[params][run_args][C20]") {
    for (XQAParams const& shape : {paged().params, contiguous().params, mla().params, fp8().params, beam().params, tree().params}) {
        RunArgs args{};
        args.struct_size = sizeof args;
        CHECK(run({shape, args}).ok());
    }
}

TEST_CASE("what is refused is refused for an empty batch too", "[params][run_args][C20]") {
    for (std::uint32_t const batch : {0u, 7u}) {
        CAPTURE(batch);
        auto const bad = [&](Call call, std::function<void(Call&)> const& change, char const* message) {
            call.args.batch = batch;
            return Bad{with(call, change), message};
        };
        check_all({
            bad(
                paged(), [](Call& c) { c.args.q_len = 2; }, "q_len is 2: accepted are 1..1, the q_len of the shape"),
            bad(
                paged(), [](Call& c) { c.args.reserved0 = 1; }, "reserved0 is 1"),
            bad(
                paged(), [](Call& c) { c.args.k_scale = -1; }, "k_scale is -1"),
            bad(
                paged(), [](Call& c) { c.args.max_len = 3201; }, "max_len is 3201"),
            bad(
                contiguous(), [](Call& c) { c.args.capacity = 1ull << 31; }, "capacity is 2147483648"),
            bad(
                beam(), [](Call& c) { c.args.capacity = 3199; }, "capacity is 3199"),
            bad(
                paged(), [](Call& c) { c.args.q = at<void>(8); }, "q is 0x8"),
            bad(
                paged(), [](Call& c) { c.args.workspace = at<void>(64); }, "workspace is 0x40"),
            bad(
                paged(), [](Call& c) { c.args.lse = at<float>(64); }, "lse is set"),
            bad(
                mla(), [](Call& c) { c.args.v = at<void>(64); }, "v is set"),
            bad(
                paged(), [](Call& c) { c.args.q_stride_head = 8; }, "q_stride_head is 8"),
            bad(
                paged(), [](Call& c) { c.args.k_stride_page = 4; }, "k_stride_page is 4"),
            bad(
                paged(), [](Call& c) { c.args.page_table_stride = 99; }, "page_table_stride is 99"),
            bad(
                tree(), [](Call& c) { c.args.mask_stride_row = 1; }, "mask_stride_row is 1"),
        });
    }
}

TEST_CASE("a cache without a page or a token may be null", "[params][run_args][C01]") {
    for (Call call : {paged(), contiguous(), mla(), fp8(), beam()}) {
        call.args.max_pages = 0;
        call.args.capacity = 0;
        call.args.k = call.args.v = nullptr;
        call.args.page_table = nullptr;
        call.args.cache_indirection = call.args.ctx_lens = nullptr;
        auto const args = run(call);
        CHECK(args.status().message() == "");
        CHECK(args->max_len == 0);
        call.args.seq_lens = nullptr;
        CHECK(run(call).status().message() == "seq_lens is null: accepted are device pointers");
    }
}

TEST_CASE("values out of range are refused by name", "[params][run_args]") {
    check_all({
        {with(paged(), [](Call& c) { c.args.batch = 65537; }), "batch is 65537: accepted are 0..65536"},
        {with(paged(), [](Call& c) { c.args.q_len = 2; }), "q_len is 2: accepted are 1..1"},
        {with(tree(), [](Call& c) { c.args.q_len = 41; }), "q_len is 41: accepted are 1..40"},
        {with(paged(), [](Call& c) { c.args.reserved0 = 1; }), "reserved0 is 1: accepted is 0"},
        {with(paged(), [](Call& c) { c.args.max_len = 3201; }),
         "max_len is 3201: accepted are 0..3200, what 100 pages of 32 tokens hold"},
        {with(paged(),
              [](Call& c) {
                  c.args.max_pages = 0;
                  c.args.max_len = 1;
              }),
         "max_len is 1: accepted are 0..0"},
        {with(contiguous(), [](Call& c) { c.args.max_len = 1001; }), "max_len is 1001: accepted are 0..1000"},
        {with(paged(),
              [](Call& c) {
                  c.args.max_pages = 0xffffffffu;
                  c.args.max_len = 1ull << 31;
              }),
         "max_len is 2147483648: accepted are 0..2147483647"},
        {with(contiguous(), [](Call& c) { c.args.capacity = 1ull << 31; }), "capacity is 2147483648: accepted are 0..2147483647"},
        {with(contiguous(), [](Call& c) { c.args.capacity = ~0ull; }),
         "capacity is 18446744073709551615: accepted are 0..2147483647"},
        {with(beam(), [](Call& c) { c.args.capacity = 3199; }),
         "capacity is 3199: accepted are 3200..2147483647 with beam_width 4"},
    });
}

TEST_CASE("the default length bound stays within int32", "[params][run_args]") {
    auto const args = run(with(paged(), [](Call& c) { c.args.max_pages = 0xffffffffu; }));
    REQUIRE(args.ok());
    CHECK(args->max_len == 0x7fffffff);
}

TEST_CASE("every pointer a launch needs is refused when null, and every other one when set", "[params][run_args]") {
    auto const sinks = with(paged(), [](Call& c) { c.params.sinks = 1; });
    auto const lse = with(paged(), [](Call& c) { c.params.lse = 1; });
    check_all({
        {with(paged(), [](Call& c) { c.args.q = nullptr; }), "q is null: accepted are device pointers"},
        {with(paged(), [](Call& c) { c.args.out = nullptr; }), "out is null"},
        {with(paged(), [](Call& c) { c.args.k = nullptr; }), "k is null"},
        {with(paged(), [](Call& c) { c.args.v = nullptr; }), "v is null"},
        {with(contiguous(), [](Call& c) { c.args.k = nullptr; }), "k is null"},
        {with(paged(), [](Call& c) { c.args.page_table = nullptr; }), "page_table is null"},
        {with(paged(), [](Call& c) { c.args.seq_lens = nullptr; }), "seq_lens is null"},
        {sinks, "sinks is null"},
        {lse, "lse is null"},
        {with(tree(), [](Call& c) { c.args.packed_mask = nullptr; }), "packed_mask is null"},
        {with(beam(), [](Call& c) { c.args.cache_indirection = nullptr; }), "cache_indirection is null"},
        {with(beam(), [](Call& c) { c.args.ctx_lens = nullptr; }), "ctx_lens is null"},
        {with(paged(), [](Call& c) { c.args.lse = at<float>(64); }), "lse is set: accepted is null without lse in the shape"},
        {with(paged(), [](Call& c) { c.args.sinks = at<float>(64); }), "sinks is set: accepted is null without sinks in the shape"},
        {with(mla(), [](Call& c) { c.args.v = at<void>(64); }), "v is set: accepted is null with mla"},
        {with(mla(), [](Call& c) { c.args.v_page_table = at<std::int32_t>(64); }),
         "v_page_table is set: accepted is null with page_size 0 or mla"},
        {with(contiguous(), [](Call& c) { c.args.page_table = at<std::int32_t>(64); }),
         "page_table is set: accepted is null with page_size 0"},
        {with(contiguous(), [](Call& c) { c.args.v_page_table = at<std::int32_t>(64); }),
         "v_page_table is set: accepted is null with page_size 0"},
        {with(paged(), [](Call& c) { c.args.cu_q_len = at<std::int32_t>(64); }),
         "cu_q_len is set: accepted is null without spec_dec"},
        {with(paged(), [](Call& c) { c.args.packed_mask = at<std::uint32_t>(64); }),
         "packed_mask is set: accepted is null without spec_dec tree"},
        {with(paged(), [](Call& c) { c.args.cache_indirection = at<std::int32_t>(64); }),
         "cache_indirection is set: accepted is null with beam_width 1"},
        {with(paged(), [](Call& c) { c.args.ctx_lens = at<std::int32_t>(64); }),
         "ctx_lens is set: accepted is null with beam_width 1"},
        {with(paged(), [](Call& c) { c.args.out_scale_rcp_ptr = at<float>(64); }),
         "out_scale_rcp_ptr is set: accepted is null without fp8 output"},
    });
}

TEST_CASE("skipped tiles are counted where tiles are skipped, in two words of eight bytes", "[params][run_args]") {
    Call const skipping = with(paged(), [](Call& c) { c.params.skip_softmax = 1; });
    CHECK(run(skipping).ok());
    auto const counted = run(with(skipping, [](Call& c) { c.args.skipped_tiles = at<std::uint64_t>(64); }));
    REQUIRE(counted.ok());
    CHECK(counted->skipped_tiles == at<std::uint64_t>(64));
    check_all({
        {with(paged(), [](Call& c) { c.args.skipped_tiles = at<std::uint64_t>(64); }),
         "skipped_tiles is set: accepted is null without skip_softmax in the shape"},
        {with(skipping, [](Call& c) { c.args.skipped_tiles = at<std::uint64_t>(68); }),
         "skipped_tiles is 0x44: accepted are addresses on 8 bytes"},
    });
    // A caller of the header before has no such field.
    Call older = skipping;
    older.args.struct_size = offsetof(RunArgs, skipped_tiles);
    older.args.skipped_tiles = at<std::uint64_t>(68);
    auto const without = run(older);
    REQUIRE(without.ok());
    CHECK(without->skipped_tiles == nullptr);
}

TEST_CASE("a scale for KV that is not quantised is refused, not applied", "[params][run_args][W23]") {
    for (std::int32_t const dtype : {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_BF16}) {
        Call call = paged();
        call.params.q_dtype = dtype;
        check_all({
            {with(call, [](Call& c) { c.args.k_scale = 0.06f; }), "k_scale is 0.06: accepted are 0, 1 with 16-bit KV"},
            {with(call, [](Call& c) { c.args.v_scale = 0.5f; }), "v_scale is 0.5: accepted are 0, 1 with 16-bit KV"},
            {with(call, [](Call& c) { c.args.k_scale_ptr = at<float>(64); }),
             "k_scale_ptr is set: accepted is null with 16-bit KV"},
            {with(call, [](Call& c) { c.args.v_scale_ptr = at<float>(64); }),
             "v_scale_ptr is set: accepted is null with 16-bit KV"},
        });
        CHECK(run(with(call, [](Call& c) { c.args.k_scale = c.args.v_scale = 1; })).ok());
    }
    for (std::int32_t const dtype : {XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8}) {
        auto const args = run(with(paged(), [&](Call& c) {
            c.params.kv_dtype = dtype;
            c.args.k_scale = 0.5f;
            c.args.v_scale = 2;
            c.args.k_scale_ptr = at<float>(64);
        }));
        REQUIRE(args.ok());
        CHECK(args->k_scale == 0.5f);
        CHECK(args->v_scale == 2);
        CHECK(args->k_scale_ptr == at<float>(64));
    }
}

TEST_CASE("scales that are negative or not finite are refused", "[params][run_args]") {
    struct Scale {
        char const* name;
        float RunArgs::*member;
    };
    for (Scale const scale : {Scale{"k_scale", &RunArgs::k_scale}, Scale{"v_scale", &RunArgs::v_scale},
                              Scale{"out_scale_rcp", &RunArgs::out_scale_rcp}})
        for (float const value : {-1.0f, -0.001f, kInf, -kInf, kNan})
            for (Call call : {paged(), fp8()}) {
                call.args.*scale.member = value;
                check_all({{call, std::string(scale.name) + " is "}});
            }
    check_all(
        {{with(paged(), [](Call& c) { c.args.out_scale_rcp = 2; }), "out_scale_rcp is 2: accepted are 0, 1 without fp8 output"}});
    CHECK(run(with(fp8(), [](Call& c) { c.args.out_scale_rcp = 2; })).ok());
}

TEST_CASE("a misaligned pointer is refused by name", "[params][run_args]") {
    struct Row {
        char const* name;
        Call call;
        std::size_t offset;  // of the pointer in RunArgs
        std::uintptr_t alignment;
    };
    auto const sinks_lse = with(paged(), [](Call& c) {
        c.params.sinks = c.params.lse = 1;
        c.args.sinks = at<float>(64);
        c.args.lse = at<float>(64);
    });
    std::vector<Row> const rows{
        {"q", paged(), offsetof(RunArgs, q), 16},
        {"out", paged(), offsetof(RunArgs, out), 16},
        {"out", fp8(), offsetof(RunArgs, out), 16},
        {"k", paged(), offsetof(RunArgs, k), 16},
        {"k", mla(), offsetof(RunArgs, k), 16},
        {"v", paged(), offsetof(RunArgs, v), 16},
        {"page_table", paged(), offsetof(RunArgs, page_table), 4},
        {"v_page_table", paged(), offsetof(RunArgs, v_page_table), 4},
        {"seq_lens", paged(), offsetof(RunArgs, seq_lens), 4},
        {"cu_q_len", tree(), offsetof(RunArgs, cu_q_len), 4},
        {"packed_mask", tree(), offsetof(RunArgs, packed_mask), 4},
        {"lse", sinks_lse, offsetof(RunArgs, lse), 4},
        {"sinks", sinks_lse, offsetof(RunArgs, sinks), 4},
        {"cache_indirection", beam(), offsetof(RunArgs, cache_indirection), 4},
        {"ctx_lens", beam(), offsetof(RunArgs, ctx_lens), 4},
        {"k_scale_ptr", fp8(), offsetof(RunArgs, k_scale_ptr), 4},
        {"v_scale_ptr", fp8(), offsetof(RunArgs, v_scale_ptr), 4},
        {"out_scale_rcp_ptr", fp8(), offsetof(RunArgs, out_scale_rcp_ptr), 4},
        {"workspace", paged(), offsetof(RunArgs, workspace), 256},
    };
    for (Row const& row : rows)
        for (std::uintptr_t const off : {std::uintptr_t{1}, std::uintptr_t{2}, row.alignment / 2, row.alignment - 1}) {
            Call call = row.call;
            std::uintptr_t const address = 0x10000 + off;
            std::memcpy(reinterpret_cast<unsigned char*>(&call.args) + row.offset, &address, sizeof address);
            std::string const ending = ": accepted are addresses on " + std::to_string(row.alignment) + " bytes";
            Status const status = run(call).status();
            CAPTURE(row.name, off, status.message());
            CHECK(status.message().rfind(std::string(row.name) + " is 0x1", 0) == 0);
            CHECK(contains(status.message(), ending));
        }
}
