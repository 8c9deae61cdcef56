#include "catch.h"
#include "shapes.h"

using namespace xqajit;
using test::contains;

namespace {

constexpr RuleKind kBuiltRules[] = {RuleKind::kBuilt};

// The choice that would be made if every family had its kernels.
std::optional<Family> choice_if_all_built(XQAParams const& params, ArchFacts const& arch) {
    std::vector<Admission> admissions;
    for (Family const family : kFamilies) admissions.push_back(admit(family, params, arch, kBuiltRules));
    return choose(admissions);
}

}  // namespace

TEST_CASE("the normal choice is mla, then gmma, then hmma, then mmha", "[select]") {
    using Edit = void (*)(XQAParams&);
    struct Case {
        char const* what;
        char const* arch;
        bool mla;
        Edit edit;
        Family chosen;
    };
    auto const c = GENERATE(values<Case>({
        {"GQA", "sm_90a", false, [](XQAParams&) {}, Family::kGmma},
        {"GQA elsewhere", "sm_80", false, [](XQAParams&) {}, Family::kHmma},
        {"GQA on PTX of 90", "compute_90", false, [](XQAParams&) {}, Family::kHmma},
        {"tree", "sm_90a", false, [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_TREE; }, Family::kGmma},
        {"linear", "sm_90a", false, [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 2; }, Family::kGmma},
        {"longer draft", "sm_90a", false, [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 64; }, Family::kGmma},
        {"longer draft of a small head", "sm_90a", false,
         [](XQAParams& p) { p.head_dim = p.head_dim_v = 32, p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 3; }, Family::kHmma},
        {"rows of part lines", "sm_90a", false, [](XQAParams& p) { p.head_dim = p.head_dim_v = 80; }, Family::kHmma},
        {"int8", "sm_90a", false, [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_INT8; }, Family::kGmma},
        {"beam", "sm_90a", false, [](XQAParams& p) { p.beam_width = 4; }, Family::kHmma},
        {"group 71", "sm_90a", false, [](XQAParams& p) { p.num_q_heads = 71, p.num_kv_heads = 1; }, Family::kGmma},
        {"page 256", "sm_90a", false, [](XQAParams& p) { p.page_size = 256; }, Family::kMmha},
        {"plain MHA", "sm_90a", false, [](XQAParams& p) { p.num_q_heads = 8; }, Family::kMmha},
        {"MHA with a linear draft", "sm_90a", false, [](XQAParams& p) { p.num_q_heads = 8, p.spec_dec = XQAJIT_SPEC_DEC_LINEAR; },
         Family::kGmma},
        {"MHA with beams", "sm_90a", false, [](XQAParams& p) { p.num_q_heads = 8, p.beam_width = 4; }, Family::kHmma},
        {"MLA", "sm_90a", true, [](XQAParams&) {}, Family::kMla},
        {"MLA", "sm_120", true, [](XQAParams&) {}, Family::kMla},
        {"MLA, 16 heads", "sm_90a", true, [](XQAParams& p) { p.num_q_heads = 16; }, Family::kMla},
        {"MLA elsewhere", "sm_80", true, [](XQAParams&) {}, Family::kMmha},
        {"MLA contiguous", "sm_90a", true, [](XQAParams& p) { p.page_size = 0; }, Family::kMmha},
    }));
    XQAParams shape = c.mla ? test::mla_shape() : test::gqa_shape();
    c.edit(shape);
    INFO(c.what << " on " << c.arch);
    std::optional<Family> const chosen = choice_if_all_built(shape, test::arch(c.arch));
    REQUIRE(chosen);
    CHECK(std::string(family_name(*chosen)) == family_name(c.chosen));
}

TEST_CASE("the kernels that are built share the shapes: tensor cores where KV is reused, mmha for the rest", "[select][P09]") {
    using Edit = void (*)(XQAParams&);
    struct Row {
        char const* what;
        bool mla;
        Edit edit;
        Family chosen;  // on sm_90a
    };
    constexpr Row kRows[] = {
        {"GQA", false, [](XQAParams&) {}, Family::kGmma},
        {"contiguous", false, [](XQAParams& p) { p.page_size = 0; }, Family::kGmma},
        {"MQA", false, [](XQAParams& p) { p.num_q_heads = 71, p.num_kv_heads = 1; }, Family::kGmma},
        {"int8", false, [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_INT8; }, Family::kGmma},
        {"fp8", false, [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_FP8_E4M3; }, Family::kGmma},
        {"linear draft", false, [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_LINEAR, p.q_len = 4; }, Family::kGmma},
        {"tree draft", false, [](XQAParams& p) { p.spec_dec = XQAJIT_SPEC_DEC_TREE, p.q_len = 4; }, Family::kGmma},
        {"beam", false, [](XQAParams& p) { p.beam_width = 4; }, Family::kHmma},
        {"MHA with a draft", false, [](XQAParams& p) { p.num_q_heads = 8, p.spec_dec = XQAJIT_SPEC_DEC_LINEAR; }, Family::kGmma},
        {"MHA with beams", false, [](XQAParams& p) { p.num_q_heads = 8, p.beam_width = 2; }, Family::kHmma},
        {"plain MHA", false, [](XQAParams& p) { p.num_q_heads = 8; }, Family::kMmha},
        {"large pages", false, [](XQAParams& p) { p.page_size = 256; }, Family::kMmha},
        {"MLA", true, [](XQAParams&) {}, Family::kMmha},
        {"group 128, beam 2", false, [](XQAParams& p) { p.num_q_heads = 128, p.num_kv_heads = 1, p.beam_width = 2; },
         Family::kMmha},
    };
    for (char const* const arch : {"sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120f", "compute_80"})
        for (Row const& row : kRows) {
            XQAParams shape = row.mla ? test::mla_shape() : test::gqa_shape();
            row.edit(shape);
            INFO(row.what << " on " << arch);
            Result<Selection> const selection = select(shape, test::arch(arch), {});
            REQUIRE(selection.ok());
            // gmma is sm_90a's: hmma has its shapes elsewhere.
            Family const chosen = row.chosen == Family::kGmma && std::string(arch) != "sm_90a" ? Family::kHmma : row.chosen;
            CHECK(std::string(family_name(selection->spec.family)) == family_name(chosen));
            CHECK(selection->spec == make_spec(chosen, shape, test::arch(arch)));
        }
}

TEST_CASE("a selection names its kernel, its reason and every family's admission", "[select]") {
    Result<Selection> const selection = select(test::gqa_shape(), test::arch("sm_90a"), {});
    REQUIRE(selection.ok());
    REQUIRE(selection->admissions.size() == std::size(kFamilies));
    bool any_other = false;
    for (std::size_t i = 0; i < std::size(kFamilies); ++i) {
        Admission const& admission = selection->admissions[i];
        CHECK(admission.family == kFamilies[i]);
        CHECK(admission.ok == admission.rule.empty());
        any_other |= admission.ok && admission.family != Family::kMmha;
        if (!admission.ok) CHECK(contains(selection->reason, admission.rule));
    }
    CHECK((selection->spec.family == Family::kMmha) == !any_other);
    CHECK(contains(selection->reason, std::string("choice.") + family_name(selection->spec.family)));
    CHECK(selection->spec == make_spec(selection->spec.family, test::gqa_shape(), test::arch("sm_90a")));
}

TEST_CASE("a shape that nobody admits is unsupported, with the rule of each family", "[select][C09]") {
    XQAParams shape = test::gqa_shape();
    shape.non_causal = 1;
    Result<Selection> const selection = select(shape, test::arch("sm_90a"), {});
    REQUIRE_FALSE(selection.ok());
    CHECK(selection.status().code() == XQAJIT_UNSUPPORTED);
    CHECK(contains(selection.status().message(), "hmma, gmma, mla, mmha (common.non_causal): refused unless"));
    CHECK(contains(selection.status().message(), "non_causal 1"));
    CHECK(contains(selection.status().message(), "sm_90a"));

    shape = test::gqa_shape();
    shape.skip_softmax = 1;
    shape.numeric = XQAJIT_NUMERIC_FP8, shape.kv_dtype = XQAJIT_DTYPE_FP8_E4M3;
    Result<Selection> const other = select(shape, test::arch("sm_80"), {});
    REQUIRE_FALSE(other.ok());
    for (Family const family : kFamilies)
        CHECK(contains(other.status().message(), std::string(family_name(family)) + " (" + family_name(family) + "."));
}

TEST_CASE("skip-softmax is gmma's alone", "[select]") {
    XQAParams shape = test::gqa_shape();
    shape.skip_softmax = 1;
    for (Family const family : kFamilies) CHECK(admit(family, shape, test::arch("sm_90a")).ok == (family == Family::kGmma));
    Overrides forced;
    forced.force_kernel = {Family::kHmma, Family::kGmma};
    Result<Selection> const selection = select(shape, test::arch("sm_90a"), forced);
    REQUIRE(selection.ok());
    CHECK(selection->spec.family == Family::kGmma);
    CHECK(selection->spec.skip_softmax);
}

TEST_CASE("a forced order takes the first family that admits the shape", "[select]") {
    Overrides forced;
    forced.force_kernel = {Family::kMla, Family::kMmha, Family::kHmma};
    Result<Selection> const selection = select(test::gqa_shape(), test::arch("sm_90a"), forced);
    REQUIRE(selection.ok());
    CHECK(selection->spec.family == Family::kMmha);
    CHECK(contains(selection->reason, "forced"));
    CHECK(contains(selection->reason, "mla,mmha,hmma"));
}

TEST_CASE("a forced family that does not serve the shape is an error, never a fallback", "[select]") {
    XQAParams shape = test::gqa_shape();
    shape.skip_softmax = 1;
    Overrides forced;
    forced.force_kernel = {Family::kHmma, Family::kMmha};
    Result<Selection> const selection = select(shape, test::arch("sm_90a"), forced);
    REQUIRE_FALSE(selection.ok());
    CHECK(selection.status().code() == XQAJIT_UNSUPPORTED);
    CHECK(contains(selection.status().message(), "XQAJIT_FORCE_KERNEL is hmma,mmha"));
    CHECK(contains(selection.status().message(), "hmma (hmma."));
    CHECK(contains(selection.status().message(), "mmha (mmha.skip_softmax)"));
    CHECK_FALSE(contains(selection.status().message(), "gmma"));

    for (Family const family : kFamilies) {
        if (family_is_built(family)) continue;
        forced.force_kernel = {family};
        Result<Selection> const unbuilt = select(test::gqa_shape(), test::arch("sm_90a"), forced);
        REQUIRE_FALSE(unbuilt.ok());
        CHECK(contains(unbuilt.status().message(), std::string(family_name(family)) + ".not_built"));
    }
}

TEST_CASE("a fused append is gmma's, also of heads that it leaves to others", "[select]") {
    for (std::uint32_t const q_heads : {8u, 64u, 1024u})
        for (std::uint32_t const head_dim : {80u, 128u}) {
            XQAParams append = test::gqa_shape();
            append.input_kv = 1;
            append.num_q_heads = q_heads;
            append.head_dim = append.head_dim_v = head_dim;
            Result<Selection> const selection = select(append, test::arch("sm_90a"), {});
            REQUIRE(selection.ok());
            CHECK(selection->spec.family == Family::kGmma);
            CHECK(selection->spec.input_kv);
            CHECK(contains(select(append, test::arch("sm_80"), {}).status().message(), "no kernel family admits"));
        }
}

TEST_CASE("forcing a family skips the rules that are choices, and no other", "[select]") {
    constexpr RuleKind kForcedAndBuilt[] = {RuleKind::kBuilt, RuleKind::kChoice};
    XQAParams mha = test::gqa_shape();
    mha.num_q_heads = mha.num_kv_heads;
    for (Family const family : {Family::kHmma, Family::kGmma}) {
        CHECK(admit(family, mha, test::arch("sm_90a"), kBuiltRules).rule == std::string(family_name(family)) + ".mha");
        CHECK(admit(family, mha, test::arch("sm_90a"), kForcedAndBuilt).ok);
    }
    // Through select(): an unbuilt family is still refused as unbuilt, a built one serves plain MHA.
    for (Family const family : {Family::kHmma, Family::kGmma}) {
        Overrides forced;
        forced.force_kernel = {family};
        Result<Selection> const selection = select(mha, test::arch("sm_90a"), forced);
        CHECK(selection.ok() == family_is_built(family));
        if (selection.ok()) CHECK(selection->spec.family == family);
    }
    XQAParams paged = mha;
    paged.page_size = 256;
    CHECK(admit(Family::kHmma, paged, test::arch("sm_90a"), kForcedAndBuilt).rule == "hmma.page");
}

TEST_CASE("a forced numeric wins over the shape's, and is refused where nothing computes it", "[select]") {
    XQAParams shape = test::gqa_shape();
    shape.kv_dtype = XQAJIT_DTYPE_FP8_E4M3;
    Overrides forced;
    forced.force_kernel = {Family::kMmha};
    forced.numeric = XQAJIT_NUMERIC_FP8;
    CHECK(contains(select(shape, test::arch("sm_90a"), forced).status().message(), "mmha.numeric"));
    CHECK(contains(select(test::gqa_shape(), test::arch("sm_90a"), forced).status().message(), "common.numeric"));

    shape.numeric = XQAJIT_NUMERIC_FP8;
    forced.numeric = XQAJIT_NUMERIC_EXACT16;
    Result<Selection> const selection = select(shape, test::arch("sm_90a"), forced);
    REQUIRE(selection.ok());
    CHECK(selection->spec.numeric == XQAJIT_NUMERIC_EXACT16);
}

TEST_CASE("the perf gate leaves the selection as it is, and gives a tensor-core kernel a second one below it", "[select]") {
    struct Row {
        char const* what;
        void (*edit)(XQAParams&, Overrides&);
        bool has_below;
    };
    constexpr Row kRows[] = {
        {"GQA", [](XQAParams&, Overrides&) {}, true},
        {"int8", [](XQAParams& p, Overrides&) { p.kv_dtype = XQAJIT_DTYPE_INT8; }, true},
        {"plain MHA, which is mmha's", [](XQAParams& p, Overrides&) { p.num_q_heads = p.num_kv_heads; }, false},
        {"MLA, which is mmha's", [](XQAParams& p, Overrides&) { p = test::mla_shape(); }, false},
        {"hmma forced", [](XQAParams&, Overrides& o) { o.force_kernel = {Family::kHmma}; }, false},
        {"hmma forced, else mmha",
         [](XQAParams&, Overrides& o) {
             o.force_kernel = {Family::kHmma, Family::kMmha};
         },
         false},
        {"mmha forced", [](XQAParams&, Overrides& o) { o.force_kernel = {Family::kMmha}; }, false},
    };
    ArchFacts const hopper = test::arch("sm_90a");
    for (Row const& row : kRows) {
        INFO(row.what);
        XQAParams shape = test::gqa_shape();
        Overrides open;
        row.edit(shape, open);
        Overrides gated = open;
        gated.perf_gate = true;
        Result<Selection> const with = select(shape, hopper, gated);
        Result<Selection> const without = select(shape, hopper, open);
        REQUIRE(with.ok());
        REQUIRE(without.ok());
        CHECK(with->spec == without->spec);
        CHECK(with->reason == without->reason);
        CHECK_FALSE(without->below_gate);
        CHECK(without->specs() == std::vector<KernelSpec>{without->spec});
        REQUIRE(with->below_gate.has_value() == row.has_below);
        if (!row.has_below) continue;
        CHECK(*with->below_gate == make_spec(Family::kMmha, shape, hopper));
        CHECK(with->specs() == std::vector<KernelSpec>{with->spec, *with->below_gate});
    }
}

TEST_CASE("on_miss fallback leaves the selection as it is, and gives it mmha's kernel where that serves the shape", "[select]") {
    struct Row {
        char const* what;
        void (*edit)(XQAParams&, Overrides&);
        bool has_fallback;
    };
    constexpr Row kRows[] = {
        {"GQA", [](XQAParams&, Overrides&) {}, true},
        {"by the setting", [](XQAParams& p, Overrides& o) { p.on_miss = 0, o.on_miss = XQAJIT_ON_MISS_FALLBACK; }, true},
        {"the setting wins", [](XQAParams&, Overrides& o) { o.on_miss = XQAJIT_ON_MISS_COMPILE; }, false},
        {"with the perf gate", [](XQAParams&, Overrides& o) { o.perf_gate = true; }, true},
        {"plain MHA, which is mmha's", [](XQAParams& p, Overrides&) { p.num_q_heads = p.num_kv_heads; }, false},
        {"what mmha does not serve", [](XQAParams& p, Overrides&) { p.input_kv = 1; }, false},
        {"gmma forced", [](XQAParams&, Overrides& o) { o.force_kernel = {Family::kGmma}; }, false},
        {"hmma forced, else mmha",
         [](XQAParams&, Overrides& o) {
             o.force_kernel = {Family::kHmma, Family::kMmha};
         },
         true},
    };
    ArchFacts const hopper = test::arch("sm_90a");
    for (Row const& row : kRows) {
        INFO(row.what);
        XQAParams shape = test::gqa_shape();
        shape.on_miss = XQAJIT_ON_MISS_FALLBACK;
        Overrides with;
        row.edit(shape, with);
        Result<Selection> const selection = select(shape, hopper, with);
        REQUIRE(selection.ok());
        shape.on_miss = XQAJIT_ON_MISS_COMPILE;
        Overrides without = with;
        without.on_miss = XQAJIT_ON_MISS_DEFAULT;
        Result<Selection> const compiled = select(shape, hopper, without);
        REQUIRE(compiled.ok());
        CHECK(selection->spec == compiled->spec);
        CHECK_FALSE(compiled->fallback);
        REQUIRE(selection->fallback.has_value() == row.has_fallback);
        CHECK(selection->specs().size() == (row.has_fallback ? 2u : 1u));
        if (row.has_fallback) CHECK(*selection->fallback == make_spec(Family::kMmha, shape, hopper));
    }
}
