#include <map>
#include <set>

#include "catch.h"
#include "shapes.h"

using namespace xqajit;

namespace {

constexpr RuleKind kBuiltRules[] = {RuleKind::kBuilt};

struct Subject {
    XQAParams params;
    ArchFacts arch;
};

// What every rule of the family admits, the built rule apart.
Subject admitted_by(Family family) {
    return {family == Family::kMla ? test::mla_shape() : test::gqa_shape(), test::arch("sm_90a")};
}

using Spoil = void (*)(Subject&);

// One edit a rule that makes it refuse, and no rule before it.
std::map<std::string, Spoil> const kExamples = {
    {"common.non_causal", [](Subject& s) { s.params.non_causal = 1; }},
    {"common.cross_attention", [](Subject& s) { s.params.cross_attention = 1; }},
    {"common.position_shift", [](Subject& s) { s.params.position_shift = 1; }},
    {"common.sink_tokens", [](Subject& s) { s.params.sink_tokens = 4; }},
    {"common.chunked_attention", [](Subject& s) { s.params.chunked_attention = 8192; }},
    {"common.position", [](Subject& s) { s.params.position = XQAJIT_POSITION_ALIBI; }},
    {"common.nvfp4", [](Subject& s) { s.params.kv_dtype = XQAJIT_DTYPE_NVFP4; }},
    {"common.heads", [](Subject& s) { s.params.num_kv_heads = 3, s.params.num_q_heads = 64; }},
    {"common.numeric", [](Subject& s) { s.params.numeric = XQAJIT_NUMERIC_FP8, s.params.kv_dtype = XQAJIT_DTYPE_INT8; }},
    {"common.nb_sub_seq", [](Subject& s) { s.params.nb_sub_seq = 4, s.params.division = XQAJIT_DIVISION_INVARIANT; }},
    {"common.on_miss",
     [](Subject& s) { s.params.on_miss = XQAJIT_ON_MISS_FALLBACK, s.params.division = XQAJIT_DIVISION_INVARIANT; }},

    {"hmma.arch", [](Subject& s) { s.arch.sm = 75; }},
    {"hmma.q_dtype", [](Subject& s) { s.params.q_dtype = XQAJIT_DTYPE_FP8_E4M3; }},
    {"hmma.kv_dtype", [](Subject& s) { s.params.kv_dtype = XQAJIT_DTYPE_FP16; }},
    {"hmma.out_dtype", [](Subject& s) { s.params.out_dtype = XQAJIT_DTYPE_FP16; }},
    {"hmma.head_dim", [](Subject& s) { s.params.head_dim = s.params.head_dim_v = 72; }},
    {"hmma.beam", [](Subject& s) { s.params.beam_width = 9; }},
    {"hmma.group_beam", [](Subject& s) { s.params.num_q_heads = 33 * 8, s.params.beam_width = 4; }},
    {"hmma.page", [](Subject& s) { s.params.page_size = 256; }},
    {"hmma.numeric", [](Subject& s) { s.params.numeric = XQAJIT_NUMERIC_FP8, s.params.kv_dtype = XQAJIT_DTYPE_FP8_E4M3; }},
    {"hmma.input_kv", [](Subject& s) { s.params.input_kv = 1; }},
    {"hmma.skip_softmax", [](Subject& s) { s.params.skip_softmax = 1; }},
    {"hmma.mha", [](Subject& s) { s.params.num_q_heads = s.params.num_kv_heads; }},

    {"gmma.arch", [](Subject& s) { s.arch = test::arch("sm_100a"); }},
    {"gmma.q_dtype", [](Subject& s) { s.params.q_dtype = XQAJIT_DTYPE_FP8_E4M3; }},
    {"gmma.kv_dtype", [](Subject& s) { s.params.kv_dtype = XQAJIT_DTYPE_FP16; }},
    {"gmma.out_dtype", [](Subject& s) { s.params.out_dtype = XQAJIT_DTYPE_INT8; }},
    {"gmma.head_dim", [](Subject& s) { s.params.head_dim = 192, s.params.head_dim_v = 128; }},
    {"gmma.group", [](Subject& s) { s.params.num_q_heads = 129, s.params.num_kv_heads = 1; }},
    {"gmma.beam", [](Subject& s) { s.params.beam_width = 4; }},
    {"gmma.rows", [](Subject& s) { s.params.num_q_heads = 17 * 8, s.params.head_dim = s.params.head_dim_v = 32; }},
    {"gmma.page", [](Subject& s) { s.params.page_size = 512; }},
    {"gmma.numeric",
     [](Subject& s) {
         s.params.numeric = XQAJIT_NUMERIC_FP8, s.params.kv_dtype = XQAJIT_DTYPE_FP8_E4M3,
         s.params.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
     }},
    {"gmma.input_kv", [](Subject& s) { s.params.input_kv = 1, s.params.spec_dec = XQAJIT_SPEC_DEC_LINEAR; }},
    {"gmma.skip_softmax", [](Subject& s) { s.params.skip_softmax = 1, s.params.num_q_heads = 17 * 8; }},
    {"gmma.mha", [](Subject& s) { s.params.num_q_heads = s.params.num_kv_heads; }},
    {"gmma.lines", [](Subject& s) { s.params.head_dim = s.params.head_dim_v = 80; }},

    {"mla.arch", [](Subject& s) { s.arch = test::arch("sm_100a"); }},
    {"mla.head_dim", [](Subject& s) { s.params = test::gqa_shape(); }},
    {"mla.q_dtype", [](Subject& s) { s.params.q_dtype = s.params.kv_dtype = s.params.out_dtype = XQAJIT_DTYPE_FP16; }},
    {"mla.kv_dtype", [](Subject& s) { s.params.kv_dtype = XQAJIT_DTYPE_INT8; }},
    {"mla.out_dtype", [](Subject& s) { s.params.out_dtype = XQAJIT_DTYPE_FP8_E4M3; }},
    {"mla.group", [](Subject& s) { s.params.num_q_heads = 129; }},
    {"mla.beam", [](Subject& s) { s.params.beam_width = 2; }},
    {"mla.page", [](Subject& s) { s.params.page_size = 0; }},
    {"mla.tree_draft", [](Subject& s) { s.params.spec_dec = XQAJIT_SPEC_DEC_TREE; }},
    {"mla.input_kv", [](Subject& s) { s.params.input_kv = 1; }},
    {"mla.skip_softmax", [](Subject& s) { s.params.skip_softmax = 1; }},

    {"mmha.arch", [](Subject& s) { s.arch.sm = 75; }},
    {"mmha.q_dtype", [](Subject& s) { s.params.q_dtype = XQAJIT_DTYPE_INT8; }},
    {"mmha.kv_dtype", [](Subject& s) { s.params.kv_dtype = XQAJIT_DTYPE_FP16; }},
    {"mmha.out_dtype", [](Subject& s) { s.params.out_dtype = XQAJIT_DTYPE_FP16; }},
    {"mmha.head_dim", [](Subject& s) { s.params.head_dim = s.params.head_dim_v = 512; }},
    {"mmha.group", [](Subject& s) { s.params.num_q_heads = 129, s.params.num_kv_heads = 1; }},
    {"mmha.beam", [](Subject& s) { s.params.beam_width = 9; }},
    {"mmha.page", [](Subject& s) { s.params.page_size = 48; }},
    {"mmha.numeric", [](Subject& s) { s.params.numeric = XQAJIT_NUMERIC_FP8, s.params.kv_dtype = XQAJIT_DTYPE_FP8_E4M3; }},
    {"mmha.input_kv", [](Subject& s) { s.params.input_kv = 1; }},
    {"mmha.skip_softmax", [](Subject& s) { s.params.skip_softmax = 1; }},
};

// The rule refuses its example, and is the one that is reported.
void check_rule(Family family, Rule const& rule) {
    INFO(family_name(family) << ": " << rule.id);
    Subject const good = admitted_by(family);
    auto const example = kExamples.find(rule.id);
    REQUIRE(example != kExamples.end());
    CHECK(rule.holds(good.params, good.arch));
    Subject bad = good;
    example->second(bad);
    CHECK_FALSE(rule.holds(bad.params, bad.arch));
    Admission const admission = admit(family, bad.params, bad.arch, kBuiltRules);
    CHECK_FALSE(admission.ok);
    CHECK(admission.family == family);
    CHECK(admission.rule == rule.id);
    CHECK(admission.text == "refused unless " + std::string(rule.text) + " (here " + rule.found(bad.params, bad.arch) + ")");
}

// An edit of the GQA shape, and the rule of a family that refuses it.
struct Row {
    char const* what;
    void (*edit)(XQAParams&);
    char const* rule;  // null: admitted
};

// of_all: the rule that refuses every row on that arch, where the family has no kernels for it.
void check_rows(Family family, std::span<Row const> rows, char const* arch, char const* of_all = nullptr) {
    for (Row const& row : rows) {
        XQAParams shape = test::gqa_shape();
        row.edit(shape);
        Admission const admission = admit(family, shape, test::arch(arch));
        INFO(row.what << " on " << arch << ": " << admission.text);
        char const* const rule = of_all != nullptr ? of_all : row.rule;
        CHECK(admission.ok == (rule == nullptr));
        if (rule != nullptr) CHECK(admission.rule == rule);
    }
}

}  // namespace

TEST_CASE("every rule of every family refuses its example and is the one reported", "[select][C09][A02]") {
    std::set<std::string> seen;
    for (Family const family : kFamilies) {
        for (Rule const& rule : common_rules()) check_rule(family, rule), seen.insert(rule.id);
        for (Rule const& rule : family_rules(family)) {
            CHECK(seen.insert(rule.id).second);  // ids are unique
            CHECK(std::string(rule.id).find(std::string(family_name(family)) + ".") == 0);
            if (rule.kind != RuleKind::kBuilt) check_rule(family, rule);
        }
    }
    for (auto const& [id, spoil] : kExamples) {
        INFO(id << " is an example of no rule");
        CHECK(seen.count(id) == 1);
    }
}

TEST_CASE("each family admits its own shape, apart from whether it is built", "[select]") {
    for (Family const family : kFamilies) {
        Subject const good = admitted_by(family);
        Admission const admission = admit(family, good.params, good.arch, kBuiltRules);
        INFO(family_name(family) << " " << admission.rule);
        CHECK(admission.ok);
        CHECK(admission.rule.empty());
        CHECK(admission.text.empty());
    }
}

TEST_CASE("a family without kernels refuses every shape by a rule of its own", "[select]") {
    for (Family const family : kFamilies) {
        Subject const good = admitted_by(family);
        Admission const admission = admit(family, good.params, good.arch);
        INFO(family_name(family));
        CHECK(admission.ok == family_is_built(family));
        if (!family_is_built(family)) {
            CHECK(admission.rule == std::string(family_name(family)) + ".not_built");
            CHECK(std::string(family_rules(family).front().id) == admission.rule);
        }
    }
    for (Family const family : kFamilies) CHECK(family_is_built(family) == (family != Family::kMla));
}

TEST_CASE("a refusal says what it found", "[select][A02]") {
    Subject s = admitted_by(Family::kMmha);
    s.params.head_dim = s.params.head_dim_v = 72;
    Admission const admission = admit(Family::kMmha, s.params, s.arch);
    CHECK(admission.text.find("multiple of 16 in 16..256") != std::string::npos);
    CHECK(admission.text.find("head_dim 72") != std::string::npos);
}

TEST_CASE("position kinds that add to the scores are refused, the others are not", "[select]") {
    for (std::int32_t position = XQAJIT_POSITION_DEFAULT; position <= XQAJIT_POSITION_RELATIVE; ++position) {
        Subject s = admitted_by(Family::kMmha);
        s.params.position = position;
        CHECK(admit(Family::kMmha, s.params, s.arch).ok == (position <= XQAJIT_POSITION_YARN));
    }
}

TEST_CASE("mmha admits every valid shape of the contract on every arch", "[select][A02][A04]") {
    for (char const* const name : test::kArchNames) {
        ArchFacts const arch = test::arch(name);
        for (std::uint32_t head_dim = 16; head_dim <= 256; head_dim += 16) {
            for (std::uint32_t const group : {1u, 2u, 5u, 6u, 7u, 71u, 128u}) {
                for (std::uint32_t const page : {0u, 8u, 16u, 32u, 64u, 128u, 256u, 512u, 1024u}) {
                    for (std::int32_t const kv : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8}) {
                        XQAParams shape = test::gqa_shape();
                        shape.head_dim = shape.head_dim_v = head_dim;
                        shape.num_q_heads = group * shape.num_kv_heads;
                        shape.page_size = page;
                        shape.kv_dtype = kv;
                        Admission const admission = admit(Family::kMmha, shape, arch);
                        if (!admission.ok) FAIL(name << " " << to_string(shape) << ": " << admission.text);
                    }
                }
            }
        }
        for (std::uint32_t const heads : {1u, 8u, 16u, 32u, 48u, 64u, 96u, 128u}) {
            XQAParams shape = test::mla_shape();
            shape.num_q_heads = heads;
            CHECK(admit(Family::kMmha, shape, arch).ok);
        }
    }
    for (std::uint32_t beam = 1; beam <= 8; ++beam) {
        XQAParams shape = test::gqa_shape();
        shape.beam_width = beam;
        CHECK(admit(Family::kMmha, shape, test::arch("sm_90a")).ok);
    }
}

TEST_CASE("hmma admits what the reference's tensor-core kernel serves, on every arch", "[select][A02]") {
    constexpr Row kRows[] = {
        {"GQA", [](XQAParams&) {}, nullptr},
        {"contiguous", [](XQAParams& p) { p.page_size = 0; }, nullptr},
        {"fp16", [](XQAParams& p) { p.q_dtype = p.kv_dtype = p.out_dtype = XQAJIT_DTYPE_FP16; }, nullptr},
        {"int8", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_INT8; }, nullptr},
        {"fp8", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_FP8_E4M3; }, nullptr},
        {"fp8 output", [](XQAParams& p) { p.out_dtype = XQAJIT_DTYPE_FP8_E4M3; }, nullptr},
        {"smallest head", [](XQAParams& p) { p.head_dim = p.head_dim_v = 16; }, nullptr},
        {"largest head", [](XQAParams& p) { p.head_dim = p.head_dim_v = 256; }, nullptr},
        {"group 71", [](XQAParams& p) { p.num_q_heads = 71, p.num_kv_heads = 1; }, nullptr},
        {"group 128", [](XQAParams& p) { p.num_q_heads = 128, p.num_kv_heads = 1; }, nullptr},
        {"group 16, beam 8", [](XQAParams& p) { p.num_q_heads = 128, p.beam_width = 8; }, nullptr},
        {"window, sinks, cap, lse", [](XQAParams& p) { p.sliding_window = 9, p.sinks = p.lse = 1, p.softcap = 5; }, nullptr},
        {"linear draft", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 64; }, nullptr},
        {"tree draft", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_TREE, p.q_len = 64; }, nullptr},
        {"MHA with a draft", [](XQAParams& p) { p.num_q_heads = 8, p.spec_dec = XQAJIT_SPEC_DEC_LINEAR; }, nullptr},
        {"balanced", [](XQAParams& p) { p.division = XQAJIT_DIVISION_BALANCED; }, nullptr},
        {"plain MHA", [](XQAParams& p) { p.num_q_heads = 8; }, "hmma.mha"},
        {"MLA", [](XQAParams& p) { p = test::mla_shape(); }, "hmma.head_dim"},
        {"page 256", [](XQAParams& p) { p.page_size = 256; }, "hmma.page"},
        {"group 17, beam 8", [](XQAParams& p) { p.num_q_heads = 136, p.beam_width = 8; }, "hmma.group_beam"},
        {"fp8 arithmetic", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_FP8_E4M3, p.numeric = XQAJIT_NUMERIC_FP8; },
         "hmma.numeric"},
        {"fused append", [](XQAParams& p) { p.input_kv = 1; }, "hmma.input_kv"},
        {"skipped tiles", [](XQAParams& p) { p.skip_softmax = 1; }, "hmma.skip_softmax"},
    };
    for (char const* const name : test::kArchNames) check_rows(Family::kHmma, kRows, name);
}

TEST_CASE("gmma admits groups and drafts on sm_90a, and few query rows of a small head", "[select][A02]") {
    constexpr Row kRows[] = {
        {"GQA", [](XQAParams&) {}, nullptr},
        {"contiguous", [](XQAParams& p) { p.page_size = 0; }, nullptr},
        {"page 8", [](XQAParams& p) { p.page_size = 8; }, nullptr},
        {"page 128", [](XQAParams& p) { p.page_size = 128; }, nullptr},
        {"fp16", [](XQAParams& p) { p.q_dtype = p.kv_dtype = p.out_dtype = XQAJIT_DTYPE_FP16; }, nullptr},
        {"int8", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_INT8; }, nullptr},
        {"fp8", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_FP8_E4M3; }, nullptr},
        {"fp8 output", [](XQAParams& p) { p.out_dtype = XQAJIT_DTYPE_FP8_E4M3; }, nullptr},
        {"smallest row", [](XQAParams& p) { p.head_dim = p.head_dim_v = 32; }, nullptr},
        {"half lines", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_INT8, p.head_dim = p.head_dim_v = 64; }, nullptr},
        {"a quarter of a line", [](XQAParams& p) { p.head_dim = p.head_dim_v = 16; }, "gmma.lines"},
        {"a line and a half", [](XQAParams& p) { p.head_dim = p.head_dim_v = 96; }, "gmma.lines"},
        {"less than a line", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_INT8, p.head_dim = p.head_dim_v = 80; }, "gmma.lines"},
        {"group 9 of a large head", [](XQAParams& p) { p.num_q_heads = 72, p.head_dim = p.head_dim_v = 192; }, nullptr},
        {"largest head", [](XQAParams& p) { p.head_dim = p.head_dim_v = 256; }, nullptr},
        {"group 16", [](XQAParams& p) { p.num_q_heads = 128; }, nullptr},
        {"group 17", [](XQAParams& p) { p.num_q_heads = 17, p.num_kv_heads = 1; }, nullptr},
        {"group 128", [](XQAParams& p) { p.num_q_heads = 128, p.num_kv_heads = 1; }, nullptr},
        {"group 129", [](XQAParams& p) { p.num_q_heads = 129, p.num_kv_heads = 1; }, "gmma.group"},
        {"group 128 of the largest head", [](XQAParams& p) { p.num_q_heads = 1024, p.head_dim = p.head_dim_v = 256; }, nullptr},
        {"group 16 of a small head", [](XQAParams& p) { p.num_q_heads = 128, p.head_dim = p.head_dim_v = 32; }, nullptr},
        {"group 17 of a small head", [](XQAParams& p) { p.num_q_heads = 136, p.head_dim = p.head_dim_v = 32; }, "gmma.rows"},
        {"draft of 3 of a small head",
         [](XQAParams& p) { p.head_dim = p.head_dim_v = 32, p.spec_dec = XQAJIT_SPEC_DEC_TREE, p.q_len = 3; }, "gmma.rows"},
        {"window, sinks, cap, lse", [](XQAParams& p) { p.sliding_window = 9, p.sinks = p.lse = 1, p.softcap = 5; }, nullptr},
        {"linear draft of 2", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 2; }, nullptr},
        {"tree draft of 2", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_TREE, p.q_len = 2; }, nullptr},
        {"MHA with a draft", [](XQAParams& p) { p.num_q_heads = 8, p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 16; }, nullptr},
        {"linear draft of 3", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 3; }, nullptr},
        {"tree draft of 3", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_TREE, p.q_len = 3; }, nullptr},
        {"linear draft of 64", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 64; }, nullptr},
        {"tree draft of 64", [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_TREE, p.q_len = 64; }, nullptr},
        {"beams", [](XQAParams& p) { p.beam_width = 2; }, "gmma.beam"},
        {"plain MHA", [](XQAParams& p) { p.num_q_heads = 8; }, "gmma.mha"},
        {"MLA", [](XQAParams& p) { p = test::mla_shape(); }, "gmma.head_dim"},
        {"page 256", [](XQAParams& p) { p.page_size = 256; }, "gmma.page"},
        {"fp8 arithmetic", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_FP8_E4M3, p.numeric = XQAJIT_NUMERIC_FP8; }, nullptr},
        {"fp8 arithmetic of a linear draft",
         [](XQAParams& p) {
             p.kv_dtype = XQAJIT_DTYPE_FP8_E4M3, p.numeric = XQAJIT_NUMERIC_FP8, p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 2;
         },
         "gmma.numeric"},
        {"skipped tiles", [](XQAParams& p) { p.skip_softmax = 1; }, nullptr},
        {"skipped tiles of plain MHA", [](XQAParams& p) { p.skip_softmax = 1, p.num_q_heads = 8; }, nullptr},
        {"skipped tiles of a line and a half", [](XQAParams& p) { p.skip_softmax = 1, p.head_dim = p.head_dim_v = 96; }, nullptr},
        {"fused append", [](XQAParams& p) { p.input_kv = 1, p.rope_style = XQAJIT_ROPE_NEOX, p.rotary_dim = 64; }, nullptr},
        {"fused append, plain MHA", [](XQAParams& p) { p.input_kv = 1, p.num_q_heads = 8; }, nullptr},
        {"fused append, part lines", [](XQAParams& p) { p.input_kv = 1, p.head_dim = p.head_dim_v = 80; }, nullptr},
        {"fused append of a draft", [](XQAParams& p) { p.input_kv = 1, p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 2; },
         "gmma.input_kv"},
        {"fused append of beams", [](XQAParams& p) { p.input_kv = 1, p.beam_width = 2; }, "gmma.beam"},
        {"fused append that skips tiles", [](XQAParams& p) { p.input_kv = 1, p.skip_softmax = 1; }, "gmma.input_kv"},
        {"skipped tiles of many rows", [](XQAParams& p) { p.skip_softmax = 1, p.num_q_heads = 17, p.num_kv_heads = 1; },
         "gmma.skip_softmax"},
    };
    for (char const* const name : test::kArchNames)
        check_rows(Family::kGmma, kRows, name, std::string(name) == "sm_90a" ? nullptr : "gmma.arch");
    XQAParams rows = test::gqa_shape();
    rows.head_dim = rows.head_dim_v = 32, rows.q_len = 3, rows.spec_dec = XQAJIT_SPEC_DEC_TREE;
    CHECK(admit(Family::kGmma, rows, test::arch("sm_90a")).text ==
          "refused unless group size x q_len is at most 16 where head_dim is below 64: more rows are multiplied by tiles of 64 "
          "elements (here 8 x 3)");
}

TEST_CASE("head dims that no kernel has are refused by validation and by every family alike", "[select][C09][A02]") {
    for (std::uint32_t const head_dim : {0u, 8u, 24u, 72u, 100u, 264u, 272u, 320u, 512u, 576u}) {
        XQAParams shape = test::gqa_shape();
        shape.head_dim = shape.head_dim_v = head_dim;
        INFO(head_dim);
        CHECK(validate(shape).code() == XQAJIT_INVALID_ARGUMENT);
        for (Family const family : kFamilies) {
            Admission const admission = admit(family, shape, test::arch("sm_90a"), kBuiltRules);
            CHECK(admission.rule == std::string(family_name(family)) + ".head_dim");
        }
    }
}

TEST_CASE("a number of sub-sequences goes with the default and static division alone", "[select]") {
    for (std::int32_t division = XQAJIT_DIVISION_DEFAULT; division <= XQAJIT_DIVISION_INVARIANT; ++division)
        for (std::uint32_t const nb_sub_seq : {0u, 1u, 6000u})
            for (Family const family : kFamilies) {
                Subject s = admitted_by(family);
                s.params.division = division;
                s.params.nb_sub_seq = nb_sub_seq;
                INFO(family_name(family) << " " << division_name(division) << " " << nb_sub_seq);
                bool const takes_number = division == XQAJIT_DIVISION_DEFAULT || division == XQAJIT_DIVISION_STATIC;
                CHECK(admit(family, s.params, s.arch, kBuiltRules).ok == (nb_sub_seq == 0 || takes_number));
            }
}
