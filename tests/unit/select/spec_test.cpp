#include "catch.h"
#include "shapes.h"

using namespace xqajit;
using test::gqa_shape;

TEST_CASE("the M tile follows each family's rule", "[select]") {
    struct Case {
        Family family;
        std::uint32_t group, q_len;
        bool mla;
        std::uint32_t m_tile;
        std::uint32_t head_dim = 128;
    };
    // hmma: a tile of eight rows, two where they are filled and their accumulators have a place.
    auto const c = GENERATE(values<Case>({
        {Family::kMmha, 1, 1, false, 1},      {Family::kMmha, 2, 1, false, 2},       {Family::kMmha, 3, 1, false, 2},
        {Family::kMmha, 7, 1, false, 2},      {Family::kMmha, 128, 1, false, 2},     {Family::kMmha, 1, 2, false, 2},
        {Family::kMmha, 1, 64, false, 2},     {Family::kMmha, 1, 1, true, 1},        {Family::kMmha, 2, 1, true, 2},
        {Family::kMmha, 128, 1, true, 2},     {Family::kMmha, 16, 8, true, 2},       {Family::kHmma, 8, 1, false, 8},
        {Family::kHmma, 1, 1, false, 8},      {Family::kHmma, 5, 1, false, 8},       {Family::kHmma, 9, 1, false, 16},
        {Family::kHmma, 128, 1, false, 16},   {Family::kHmma, 1, 8, false, 8},       {Family::kHmma, 1, 9, false, 16},
        {Family::kHmma, 8, 2, false, 16},     {Family::kHmma, 4, 2, false, 8},       {Family::kHmma, 8, 64, false, 16},
        {Family::kHmma, 8, 1, false, 8, 16},  {Family::kHmma, 16, 1, false, 16, 16}, {Family::kHmma, 8, 1, false, 8, 144},
        {Family::kHmma, 9, 1, false, 8, 144}, {Family::kHmma, 8, 8, false, 8, 256},  {Family::kHmma, 128, 1, false, 8, 256},
        {Family::kGmma, 8, 1, false, 8},      {Family::kGmma, 8, 4, false, 64},      {Family::kMla, 128, 1, true, 128},
        {Family::kMla, 16, 2, true, 64},
    }));
    XQAParams shape = c.mla ? test::mla_shape() : gqa_shape();
    shape.num_q_heads = shape.num_kv_heads * c.group;
    shape.q_len = c.q_len;
    if (!c.mla) shape.head_dim = shape.head_dim_v = c.head_dim;
    if (c.q_len > 1) shape.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    KernelSpec const spec = make_spec(c.family, shape, test::arch("sm_90a"));
    INFO(family_name(c.family) << " G " << c.group << " q_len " << c.q_len << " D " << c.head_dim);
    CHECK(spec.m_tile == c.m_tile);
    CHECK(spec.group_size == c.group);
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
