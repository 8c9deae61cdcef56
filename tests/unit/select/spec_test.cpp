#include "catch.h"
#include "shapes.h"

using namespace xqajit;
using test::gqa_shape;

namespace {

// m_tiles: of up to 8, 16 and 32 rows, and of more.
void check_m_tiles(Family family, char const* arch, std::uint32_t head_dim, std::int32_t kv_dtype, std::uint32_t beam_width,
                   std::uint32_t const (&m_tiles)[4]) {
    struct Rows {
        std::uint32_t group, q_len;
    };
    std::vector<Rows> const rows_of_tile[] = {{{1, 1}, {2, 1}, {5, 1}, {8, 1}, {1, 2}, {1, 8}, {2, 4}, {4, 2}},
                                              {{9, 1}, {16, 1}, {1, 9}, {1, 16}, {2, 8}, {3, 3}, {8, 2}},
                                              {{17, 1}, {32, 1}, {1, 17}, {1, 32}, {8, 3}, {4, 8}},
                                              {{33, 1}, {71, 1}, {128, 1}, {1, 33}, {1, 64}, {5, 7}, {8, 8}, {128, 64}}};
    for (std::size_t i = 0; i < std::size(rows_of_tile); ++i)
        for (Rows const& rows : rows_of_tile[i]) {
            if (beam_width > 1 && rows.q_len > 1) continue;  // no family has both
            XQAParams shape = gqa_shape();
            shape.num_q_heads = shape.num_kv_heads * rows.group;
            shape.head_dim = shape.head_dim_v = head_dim;
            shape.kv_dtype = kv_dtype;
            shape.beam_width = beam_width;
            shape.q_len = rows.q_len;
            if (rows.q_len > 1) shape.spec_dec = XQAJIT_SPEC_DEC_TREE;
            INFO(family_name(family) << " " << arch << " D " << head_dim << " " << dtype_name(kv_dtype) << " beam " << beam_width
                                     << " G " << rows.group << " q_len " << rows.q_len);
            CHECK(make_spec(family, shape, test::arch(arch)).m_tile == m_tiles[i]);
        }
}

}  // namespace

TEST_CASE("the M tile follows each family's rule", "[select]") {
    struct Case {
        Family family;
        std::uint32_t group, q_len;
        bool mla;
        std::uint32_t m_tile;
    };
    auto const c = GENERATE(values<Case>({
        {Family::kMmha, 1, 1, false, 1},
        {Family::kMmha, 2, 1, false, 2},
        {Family::kMmha, 3, 1, false, 2},
        {Family::kMmha, 7, 1, false, 2},
        {Family::kMmha, 128, 1, false, 2},
        {Family::kMmha, 1, 2, false, 2},
        {Family::kMmha, 1, 64, false, 2},
        {Family::kMmha, 1, 1, true, 1},
        {Family::kMmha, 2, 1, true, 2},
        {Family::kMmha, 128, 1, true, 2},
        {Family::kMmha, 16, 8, true, 2},
        {Family::kMla, 128, 1, true, 128},
        {Family::kMla, 16, 2, true, 64},
    }));
    XQAParams shape = c.mla ? test::mla_shape() : gqa_shape();
    shape.num_q_heads = shape.num_kv_heads * c.group;
    shape.q_len = c.q_len;
    if (c.q_len > 1) shape.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    KernelSpec const spec = make_spec(c.family, shape, test::arch("sm_90a"));
    INFO(family_name(c.family) << " G " << c.group << " q_len " << c.q_len);
    CHECK(spec.m_tile == c.m_tile);
    CHECK(spec.group_size == c.group);
}

TEST_CASE("hmma's M tile holds the rows, as far as registers and the shared memory of a block do", "[select][P09][C06]") {
    struct Case {
        char const* arch;
        std::uint32_t head_dim;
        std::int32_t kv_dtype;
        std::uint32_t beam_width;
        std::uint32_t m_tiles[4];  // of up to 8, 16 and 32 rows, and of more
    };
    std::int32_t const bf16 = XQAJIT_DTYPE_BF16, fp8 = XQAJIT_DTYPE_FP8_E4M3, int8 = XQAJIT_DTYPE_INT8;
    auto const c = GENERATE_REF(values<Case>({
        {"sm_90a", 16, bf16, 1, {8, 16, 32, 64}},
        {"sm_90a", 128, bf16, 1, {8, 16, 32, 64}},
        {"sm_90a", 128, fp8, 1, {8, 16, 32, 64}},
        {"sm_90a", 144, bf16, 1, {8, 32, 32, 64}},
        {"sm_90a", 144, int8, 1, {8, 32, 32, 64}},
        {"sm_90a", 256, bf16, 1, {8, 32, 32, 64}},
        {"sm_90a", 256, fp8, 1, {8, 32, 32, 64}},
        {"sm_80", 256, bf16, 1, {8, 32, 32, 64}},
        {"sm_86", 16, int8, 1, {8, 16, 32, 64}},
        {"sm_86", 128, bf16, 1, {8, 16, 32, 64}},
        {"sm_86", 224, bf16, 1, {8, 32, 32, 64}},
        {"sm_86", 240, bf16, 1, {8, 32, 32, 32}},  // 64 rows of q and of partial results are more than its 99 KB
        {"sm_86", 256, bf16, 1, {8, 32, 32, 32}},
        {"sm_120f", 256, bf16, 1, {8, 32, 32, 32}},
        {"sm_86", 256, fp8, 1, {8, 32, 32, 64}},
        {"sm_86", 256, int8, 1, {8, 32, 32, 64}},
        {"sm_90a", 128, bf16, 2, {8, 16, 16, 16}},  // each beam has its own pages
        {"sm_90a", 64, int8, 8, {8, 16, 16, 16}},
        {"sm_90a", 144, fp8, 4, {8, 8, 8, 8}},
        {"sm_86", 256, bf16, 4, {8, 8, 8, 8}},
    }));
    check_m_tiles(Family::kHmma, c.arch, c.head_dim, c.kv_dtype, c.beam_width, c.m_tiles);
}

TEST_CASE("gmma's M tile holds the rows, as far as registers do", "[select]") {
    struct Case {
        std::uint32_t head_dim;
        std::uint32_t m_tiles[4];  // of up to 8, 16 and 32 rows, and of more
    };
    auto const c = GENERATE(values<Case>({
        {64, {8, 16, 32, 64}},
        {80, {8, 16, 32, 64}},
        {128, {8, 16, 32, 64}},
        {144, {8, 32, 32, 32}},
        {256, {8, 32, 32, 32}},
    }));
    for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
        check_m_tiles(Family::kGmma, "sm_90a", c.head_dim, kv_dtype, 1, c.m_tiles);
    for (std::uint32_t const head_dim : {16u, 32u, 48u}) {  // which has no more rows
        XQAParams shape = gqa_shape();
        shape.head_dim = shape.head_dim_v = head_dim;
        CHECK(make_spec(Family::kGmma, shape, test::arch("sm_90a")).m_tile == 8);
        shape.num_q_heads = shape.num_kv_heads * 16;
        CHECK(make_spec(Family::kGmma, shape, test::arch("sm_90a")).m_tile == 16);
    }
}

TEST_CASE("every compile-time field alone makes another spec, and prints differently", "[select][J10]") {
    using Edit = void (*)(XQAParams&);
    std::pair<char const*, Edit> const edits[] = {
        {"q_dtype", [](XQAParams& p) { p.q_dtype = p.kv_dtype = p.out_dtype = XQAJIT_DTYPE_FP16; }},
        {"kv_dtype", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_FP8_E4M3; }},
        {"kv_dtype int8", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_INT8; }},
        {"out_dtype", [](XQAParams& p) { p.out_dtype = XQAJIT_DTYPE_FP8_E4M3; }},
        {"numeric", [](XQAParams& p) { p.numeric = XQAJIT_NUMERIC_FP8; }},
        {"head_dim", [](XQAParams& p) { p.head_dim = p.head_dim_v = 64; }},
        {"group size", [](XQAParams& p) { p.num_q_heads = 32; }},
        {"page_size", [](XQAParams& p) { p.page_size = 64; }},
        {"contiguous", [](XQAParams& p) { p.page_size = 0; }},
        {"beam_width", [](XQAParams& p) { p.beam_width = 4; }},
        {"linear", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_LINEAR; }},
        {"tree", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_TREE; }},
        {"sinks", [](XQAParams& p) { p.sinks = 1; }},
        {"lse", [](XQAParams& p) { p.lse = 1; }},
        {"input_kv", [](XQAParams& p) { p.input_kv = 1; }},
        {"rope", [](XQAParams& p) { p.input_kv = 1, p.rope_style = XQAJIT_ROPE_NEOX, p.rotary_dim = 128; }},
        {"rope style", [](XQAParams& p) { p.input_kv = 1, p.rope_style = XQAJIT_ROPE_GPTJ, p.rotary_dim = 128; }},
        {"rotary_dim", [](XQAParams& p) { p.input_kv = 1, p.rope_style = XQAJIT_ROPE_NEOX, p.rotary_dim = 64; }},
        {"skip_softmax", [](XQAParams& p) { p.skip_softmax = 1; }},
        {"sliding_window", [](XQAParams& p) { p.sliding_window = 4096; }},
        {"softcap", [](XQAParams& p) { p.softcap = 50; }},
    };
    ArchFacts const hopper = test::arch("sm_90a");
    std::vector<KernelSpec> specs = {make_spec(Family::kMmha, gqa_shape(), hopper), make_spec(Family::kHmma, gqa_shape(), hopper),
                                     make_spec(Family::kMmha, gqa_shape(), test::arch("sm_80")),
                                     make_spec(Family::kMmha, test::mla_shape(), hopper)};
    for (auto const& [name, edit] : edits) {
        XQAParams shape = gqa_shape();
        edit(shape);
        KernelSpec const spec = make_spec(Family::kMmha, shape, hopper);
        for (KernelSpec const& other : specs) {
            INFO(name);
            CHECK_FALSE(spec == other);
            CHECK(to_string(spec) != to_string(other));
            CHECK(to_json(spec) != to_json(other));
        }
        specs.push_back(spec);
    }
}

TEST_CASE("a field that no kernel depends on leaves the spec as it is", "[select]") {
    using Edit = void (*)(XQAParams&);
    std::pair<char const*, Edit> const edits[] = {
        {"num_kv_heads at the same group size", [](XQAParams& p) { p.num_kv_heads = 4, p.num_q_heads = 32; }},
        {"qk_scale", [](XQAParams& p) { p.qk_scale = 0.5f; }},
        {"division", [](XQAParams& p) { p.division = XQAJIT_DIVISION_INVARIANT; }},
        {"nb_sub_seq", [](XQAParams& p) { p.nb_sub_seq = 7; }},
        {"pdl", [](XQAParams& p) { p.pdl = 1; }},
        {"rotary_dim without input_kv", [](XQAParams& p) { p.rotary_dim = 64; }},
        {"position", [](XQAParams& p) { p.position = XQAJIT_POSITION_YARN; }},
        {"on_miss", [](XQAParams& p) { p.on_miss = XQAJIT_ON_MISS_FALLBACK; }},
    };
    ArchFacts const hopper = test::arch("sm_90a");
    for (auto const& [name, edit] : edits) {
        XQAParams shape = gqa_shape();
        edit(shape);
        INFO(name);
        CHECK(make_spec(Family::kMmha, shape, hopper) == make_spec(Family::kMmha, gqa_shape(), hopper));
    }
    XQAParams wide = gqa_shape(), narrow = gqa_shape();
    wide.sliding_window = 4096, narrow.sliding_window = 128;
    CHECK(make_spec(Family::kMmha, wide, hopper) == make_spec(Family::kMmha, narrow, hopper));
}

TEST_CASE("families have one name each", "[select]") {
    for (Family const family : kFamilies) CHECK(family_from_name(family_name(family)) == family);
    for (char const* const name : {"", "xqa", "HMMA", "mmha ", "mha"}) CHECK_FALSE(family_from_name(name));
}
