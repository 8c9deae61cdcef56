#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "unit/params/calls.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {
constexpr std::int64_t kMax64 = std::numeric_limits<std::int64_t>::max();
}  // namespace

TEST_CASE("defaults of a paged launch are packed NHD", "[params][run_args]") {
    auto const args = run(paged());
    REQUIRE(args.ok());
    CHECK(args->q_len == 1);
    CHECK(args->max_len == 3200);
    CHECK(args->q_stride_head == 128);
    CHECK(args->q_stride_row == 64 * 128);
    CHECK(args->out_stride_head == 128);
    CHECK(args->out_stride_row == 64 * 128);
    CHECK(args->k_stride_head == 128);
    CHECK(args->k_stride_token == 8 * 128);
    CHECK(args->k_stride_page == 32 * 8 * 128);
    CHECK(args->v_stride_head == 128);
    CHECK(args->v_stride_token == 8 * 128);
    CHECK(args->v_stride_page == 32 * 8 * 128);
    CHECK(args->page_table_stride == 100);
    CHECK(args->k_scale == 1);
    CHECK(args->v_scale == 1);
    CHECK(args->out_scale_rcp == 1);
}

TEST_CASE("defaults of a contiguous launch follow the capacity", "[params][run_args]") {
    auto const args = run(contiguous());
    REQUIRE(args.ok());
    CHECK(args->max_len == 1000);
    CHECK(args->k_stride_page == 1000 * 8 * 128);
    CHECK(args->v_stride_page == 1000 * 8 * 128);
}

TEST_CASE("V takes K's strides with MLA", "[params][run_args]") {
    auto const args = run(with(mla(), [](Call& c) {
        c.args.k_stride_page = 64 * 640;
        c.args.k_stride_token = 640;
    }));
    REQUIRE(args.ok());
    CHECK(args->out_stride_row == 128 * 512);
    CHECK(args->k_stride_head == 0);
    CHECK(args->v_stride_page == args->k_stride_page);
    CHECK(args->v_stride_token == 640);
}

TEST_CASE("the mask's row holds the launch's longest draft", "[params][run_args]") {
    for (auto const& [q_len, words] : {std::pair{1, 1}, {32, 1}, {33, 2}, {40, 2}}) {
        auto const args = run(with(tree(), [q = q_len](Call& c) { c.args.q_len = static_cast<std::uint32_t>(q); }));
        REQUIRE(args.ok());
        CHECK(args->mask_stride_row == words);
    }
}

TEST_CASE("given strides are kept: HND, interleaved pools, spaced rows", "[params][run_args]") {
    Call const call = with(paged(), [](Call& c) {
        c.args.k_stride_page = 2 * 8 * 32 * 128;
        c.args.k_stride_head = 32 * 128;
        c.args.k_stride_token = 128;
        c.args.v_stride_page = 1 << 20;
        c.args.v_stride_token = 1024;
        c.args.v_stride_head = 136;
        c.args.q_stride_head = 192;
        c.args.out_stride_row = 128;
        c.args.out_stride_head = 7 * 128;
        c.args.page_table_stride = 128;
        c.args.max_len = 5;
    });
    auto const args = run(call);
    REQUIRE(args.ok());
    CHECK(args->k_stride_page == 2 * 8 * 32 * 128);
    CHECK(args->k_stride_token == 128);
    CHECK(args->v_stride_head == 136);
    CHECK(args->q_stride_row == 64 * 192);
    CHECK(args->out_stride_row == 128);
    CHECK(args->out_stride_head == 7 * 128);
    CHECK(args->page_table_stride == 128);
    CHECK(args->max_len == 5);
}

TEST_CASE("a stride that is misaligned, negative or too small is refused by name", "[params][run_args]") {
    struct Stride {
        char const* name;
        std::int64_t RunArgs::*member;
        bool rows;  // of q or out, else of the cache
    };
    std::vector<Stride> const strides{
        {"q_stride_row", &RunArgs::q_stride_row, true},      {"q_stride_head", &RunArgs::q_stride_head, true},
        {"out_stride_row", &RunArgs::out_stride_row, true},  {"out_stride_head", &RunArgs::out_stride_head, true},
        {"k_stride_page", &RunArgs::k_stride_page, false},   {"k_stride_token", &RunArgs::k_stride_token, false},
        {"k_stride_head", &RunArgs::k_stride_head, false},   {"v_stride_page", &RunArgs::v_stride_page, false},
        {"v_stride_token", &RunArgs::v_stride_token, false}, {"v_stride_head", &RunArgs::v_stride_head, false},
    };
    auto const full = [](Call call) {
        call.args.k_stride_page = call.args.v_stride_page = 32 * 8 * 128;
        call.args.k_stride_token = call.args.v_stride_token = 8 * 128;
        call.args.k_stride_head = call.args.v_stride_head = 128;
        return call;
    };
    for (Call const& call : {full(paged()), full(fp8())}) {
        CHECK(run(call).ok());
        bool const bytes = call.params.kv_dtype == XQAJIT_DTYPE_FP8_E4M3;
        for (Stride const& stride : strides) {
            std::vector<std::int64_t> bad{-8, -16, -1024, 8 * 128 + 1, 8 * 128 + 4, std::numeric_limits<std::int64_t>::min()};
            if (stride.rows) bad.push_back(112);  // rows would overlap
            if (!stride.rows) bad.push_back(0);   // the other two are set
            if (bytes && stride.name[0] != 'q') bad.push_back(8 * 128 + 8);
            for (std::int64_t const value : bad) {
                Call changed = call;
                changed.args.*stride.member = value;
                Status const status = run(changed).status();
                CAPTURE(stride.name, value, status.message());
                CHECK(status.message().rfind(std::string(stride.name) + " is " + std::to_string(value) + " elements", 0) == 0);
                CHECK(contains(status.message(), "(16 bytes)"));
            }
        }
    }
    check_all({
        {with(paged(), [](Call& c) { c.args.page_table_stride = 99; }), "page_table_stride is 99: accepted are 100 and more"},
        {with(paged(), [](Call& c) { c.args.page_table_stride = -1; }), "page_table_stride is -1: accepted are 100 and more"},
        {with(tree(), [](Call& c) { c.args.mask_stride_row = 1; }), "mask_stride_row is 1: accepted are 2 and more"},
        {with(tree(), [](Call& c) { c.args.mask_stride_row = -2; }), "mask_stride_row is -2: accepted are 2 and more"},
    });
}

TEST_CASE("a stride along a single element may be zero", "[params][run_args]") {
    CHECK(run(with(contiguous(), [](Call& c) {
              c.args.batch = 1;
              c.args.k_stride_token = 8 * 128;
              c.args.k_stride_head = 128;
          })).ok());
    check_all({{with(contiguous(),
                     [](Call& c) {
                         c.args.k_stride_token = 8 * 128;
                         c.args.k_stride_head = 128;
                     }),
                "k_stride_page is 0 elements"}});
}

TEST_CASE("strides whose extent leaves 64 bits are refused by name", "[params][run_args]") {
    std::int64_t const large = kMax64 / 16 * 16;
    auto const cache = [](Call& c) {
        c.args.k_stride_page = 32 * 8 * 128;
        c.args.k_stride_token = 8 * 128;
        c.args.k_stride_head = 128;
    };
    check_all({
        {with(paged(), [&](Call& c) { c.args.q_stride_row = large; }), "q_stride_row is "},
        {with(paged(), [&](Call& c) { c.args.q_stride_head = large; }), "q_stride_head is "},
        {with(paged(), [&](Call& c) { c.args.out_stride_row = large; }), "out_stride_row is "},
        {with(paged(), [&](Call& c) { c.args.out_stride_head = large; }), "out_stride_head is "},
        {with(paged(),
              [&](Call& c) {
                  cache(c);
                  c.args.k_stride_page = large;
              }),
         "k_stride_page is "},
        {with(paged(),
              [&](Call& c) {
                  cache(c);
                  c.args.k_stride_token = large;
              }),
         "k_stride_token is "},
        {with(paged(),
              [&](Call& c) {
                  cache(c);
                  c.args.k_stride_head = large;
              }),
         "k_stride_head is "},
        {with(paged(), [&](Call& c) { c.args.page_table_stride = large; }), "page_table_stride is "},
        {with(tree(), [&](Call& c) { c.args.mask_stride_row = large; }), "mask_stride_row is "},
        {with(contiguous(),
              [](Call& c) {
                  c.params.num_kv_heads = c.params.num_q_heads = 4096;
                  c.params.head_dim = 256;
                  c.args.batch = 65536;
                  c.args.capacity = 0x7fffffff;
              }),
         "capacity is 2147483647: accepted are values with which 65536 rows"},
    });
}
