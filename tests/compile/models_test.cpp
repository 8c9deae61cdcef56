// The kernels of real models: none may spill or need a stack, on any target, and all fit the shared memory of a block there.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "catch.h"
#include "hmma/launch.h"
#include "plan/blocks.h"
#include "plan/plan.h"
#include "select/select.h"
#include "shapes.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

constexpr char const* kTargets[] = {"sm_80",   "sm_86",   "sm_89",   "sm_90a",  "sm_100a", "sm_103a",
                                    "sm_110a", "sm_120a", "sm_120f", "sm_121a", "sm_121f"};

using Edit = void (*)(XQAParams&);

void plain(XQAParams&) {}
void draft_of_2(XQAParams& params) {
    params.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    params.q_len = 2;
}
void draft_of_8(XQAParams& params) {
    params.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    params.q_len = 8;
}
// A shape that gmma does not compute stays as it is, for the others.
void skipping(XQAParams& params) {
    XQAParams const given = params;
    params.skip_softmax = 1;
    params.skip_softmax_threshold = 10;
    RuleKind const waived[] = {RuleKind::kChoice};
    if (!admit(Family::kGmma, params, *arch_from_name("sm_90a"), waived).ok) params = given;
}
// A block of it holds the most rows there are. No family has a window with a tree.
void tree_of_64(XQAParams& params) {
    params.spec_dec = XQAJIT_SPEC_DEC_TREE;
    params.q_len = 64;
    params.sliding_window = 0;
}

// As skipping(): an fp8 cache without a linear draft.
void fp8_math(XQAParams& params) {
    XQAParams edited = params;
    edited.numeric = XQAJIT_NUMERIC_FP8;
    RuleKind const waived[] = {RuleKind::kChoice};
    if (admit(Family::kGmma, edited, *arch_from_name("sm_90a"), waived).ok) params = edited;
}

// Where gmma has it; the whole head is rotated.
void fused_append(XQAParams& params) {
    XQAParams edited = params;
    edited.input_kv = 1;
    edited.rope_style = XQAJIT_ROPE_NEOX;
    edited.rotary_dim = edited.head_dim;
    RuleKind const waived[] = {RuleKind::kChoice};
    if (admit(Family::kGmma, edited, *arch_from_name("sm_90a"), waived).ok) params = edited;
}

std::vector<KernelSpec> model_kernels(std::string const& target, Family family, Edit edit) {
    std::ifstream file(MODELS);
    std::ostringstream text;
    text << file.rdbuf();
    std::vector<KernelSpec> kernels = kernels_of(text.str(), target, edit);
    std::erase_if(kernels, [family](KernelSpec const& spec) { return spec.family != family; });
    return kernels;
}

// Of kernels that differ in the group size alone the registers hardly differ: one each, the last.
std::vector<KernelSpec> distinct_kernels(std::string const& target, Family family, Edit edit) {
    std::vector<KernelSpec> distinct;
    for (KernelSpec const& spec : model_kernels(target, family, edit)) {
        auto const same = std::find_if(distinct.begin(), distinct.end(), [&](KernelSpec other) {
            other.group_size = spec.group_size;
            return other == spec;
        });
        if (same == distinct.end())
            distinct.push_back(spec);
        else
            *same = spec;
    }
    return distinct;
}

// Bytes of stores and loads. gmma keeps some kernels to the registers of a second large block an SM, which is worth more than the few words that
// some group sizes spill; compilers before 13 spill up to twice as many.
std::uint32_t most_spilled(NvrtcLibrary const& nvrtc, KernelSpec const& spec) {
    if (spec.family != Family::kGmma || spec.skip_softmax) return 0;
    if (device::gmma_large_blocks({spec.head_dim, dtype_bytes(spec.kv_dtype), spec.m_tile}) < 2) return 0;
    return nvrtc.version().starts_with("12.") ? 192 : 96;
}

void require_lean(NvrtcLibrary const& nvrtc, KernelSpec const& spec) {
    auto const compiled = compile(nvrtc, request_of(spec));
    INFO(to_string(spec) << "\n" << compiled.status().message() << "\n" << compiled.status().detail());
    REQUIRE(compiled.ok());
    INFO(compiled->registers << " registers, " << compiled->spill_bytes << " bytes spilled, " << compiled->stack_bytes
                             << " bytes of stack, " << compiled->static_smem << " bytes of static shared memory");
    CHECK(compiled->registers > 0);
    CHECK(compiled->spill_bytes <= most_spilled(nvrtc, spec));
    CHECK(compiled->stack_bytes <= most_spilled(nvrtc, spec));
    std::uint32_t const smem_optin = arch_from_name(spec.target)->smem_optin;
    CHECK(compiled->static_smem + most_dynamic_smem(spec, smem_optin) <= smem_optin);
    // What the host reckons with.
    if (spec.family == Family::kGmma) CHECK(compiled->static_smem <= device::gmma_static_smem(gmma_kind(spec)));
    if (spec.family == Family::kHmma)
        CHECK(compiled->static_smem <= device::hmma_static_smem(spec.head_dim, dtype_bytes(spec.kv_dtype), spec.m_tile));
}

void no_spills(Family family, std::int32_t kv_dtype, Edit edit = plain) {
    auto const nvrtc = real_nvrtc();
    require_target(*nvrtc, "sm_90a");
    int compiled_kernels = 0;
    for (KernelSpec const& spec : distinct_kernels("sm_90a", family, edit)) {
        if (spec.kv_dtype != kv_dtype) continue;
        require_lean(*nvrtc, spec);
        ++compiled_kernels;
    }
    CHECK(compiled_kernels >= 10);
}

// A share of the kernels on each target; both halves together are all of them.
void no_spills_elsewhere(std::size_t half, Edit edit = plain) {
    auto const nvrtc = real_nvrtc();
    std::vector<std::string> targets(std::begin(kTargets), std::end(kTargets));
    std::erase(targets, "sm_90a");
    for (std::size_t t = half; t < targets.size(); t += 2) {
        if (!knows_target(*nvrtc, targets[t])) continue;
        std::vector<KernelSpec> const kernels = distinct_kernels(targets[t], Family::kHmma, edit);
        for (std::size_t i = t; i < kernels.size(); i += targets.size()) require_lean(*nvrtc, kernels[i]);
    }
}

// Of a gmma kernel's blocks on an SM, which its registers and its shared memory must hold.
struct Together {
    std::uint32_t groups, blocks;
};

std::vector<Together> planned_together(KernelSpec const& spec) {
    return {{1, device::gmma_shape(gmma_kind(spec)).blocks_an_sm},
            {device::kMostGmmaGroups, device::gmma_large_blocks(gmma_kind(spec))}};
}

// Each of an SM's four partitions holds whole warps, whose registers come by 256.
std::uint32_t blocks_that_registers_hold(std::uint32_t registers, std::uint32_t threads) {
    constexpr std::uint32_t kWarp = 32, kUnit = 256, kPartitions = 4, kOfPartition = 16384;
    std::uint32_t const of_warp = (registers * kWarp + kUnit - 1) / kUnit * kUnit;
    return kOfPartition / of_warp * kPartitions / (threads / kWarp);
}

std::uint32_t blocks_that_smem_holds(KernelSpec const& spec, Together const& together) {
    constexpr std::uint32_t kSmemOfAnSm = 233472, kReserved = 1024;
    auto const kv_bytes = static_cast<std::uint32_t>(dtype_bytes(spec.kv_dtype));
    device::GmmaShape const shape = device::gmma_shape(gmma_kind(spec));
    std::uint32_t const items = device::gmma_ring_items(shape, together.groups, together.blocks);
    std::uint32_t const dynamic = device::gmma_dynamic_smem(shape, spec.head_dim, kv_bytes, spec.m_tile, together.groups, items);
    return kSmemOfAnSm / (device::gmma_static_smem(gmma_kind(spec)) + dynamic + kReserved);
}

void require_to_fit(NvrtcLibrary const& nvrtc, KernelSpec const& spec) {
    auto const compiled = compile(nvrtc, request_of(spec));
    INFO(to_string(spec) << "\n" << compiled.status().message() << "\n" << compiled.status().detail());
    REQUIRE(compiled.ok());
    CHECK(compiled->static_smem <= device::gmma_static_smem(gmma_kind(spec)));
    for (Together const& together : planned_together(spec)) {
        INFO(compiled->registers << " registers, " << together.blocks << " blocks of " << together.groups << " groups");
        CHECK(blocks_that_registers_hold(compiled->registers, device::gmma_threads(together.groups)) >= together.blocks);
        CHECK(blocks_that_smem_holds(spec, together) >= together.blocks);
    }
}

}  // namespace

TEST_CASE("no model's mmha kernel with bf16 KV spills on sm_90a", "[compile][models]") {
    no_spills(Family::kMmha, XQAJIT_DTYPE_BF16);
}
TEST_CASE("no model's mmha kernel with fp8 KV spills on sm_90a", "[compile][models]") {
    no_spills(Family::kMmha, XQAJIT_DTYPE_FP8_E4M3);
}
TEST_CASE("no model's mmha kernel with int8 KV spills on sm_90a", "[compile][models]") {
    no_spills(Family::kMmha, XQAJIT_DTYPE_INT8);
}
TEST_CASE("no model's hmma kernel with bf16 KV spills on sm_90a", "[compile][models]") {
    no_spills(Family::kHmma, XQAJIT_DTYPE_BF16);
}
TEST_CASE("no model's hmma kernel with fp8 KV spills on sm_90a", "[compile][models]") {
    no_spills(Family::kHmma, XQAJIT_DTYPE_FP8_E4M3);
}
TEST_CASE("no model's hmma kernel with int8 KV spills on sm_90a", "[compile][models]") {
    no_spills(Family::kHmma, XQAJIT_DTYPE_INT8);
}

// Blocks share an SM: its registers and its shared memory hold as many as the plan counts on.
TEST_CASE("as many blocks of a gmma kernel as planned fit an SM", "[compile][models]") {
    auto const nvrtc = real_nvrtc();
    require_target(*nvrtc, "sm_90a");
    std::set<std::uint32_t> m_tiles;
    for (auto const& [kv_dtype, edit] : {std::pair<std::int32_t, Edit>{XQAJIT_DTYPE_BF16, plain},
                                         {XQAJIT_DTYPE_FP8_E4M3, plain},
                                         {XQAJIT_DTYPE_FP8_E4M3, fp8_math}})
        for (std::uint32_t const head_dim : {64u, 128u, 256u})
            for (std::uint32_t const q_heads : {8u, 16u, 32u, 64u}) {
                if (head_dim == 256 && q_heads > 32) continue;  // the kernel of 32, but for the group size
                auto const kernels =
                    kernels_of(R"({"version": 1, "shapes": [{"q_dtype": "bf16", "kv_dtype": ")" +
                                   std::string(dtype_name(kv_dtype)) + R"(", "head_dim": )" + std::to_string(head_dim) +
                                   R"(, "num_q_heads": )" + std::to_string(q_heads) + R"(, "num_kv_heads": 1, "page_size": 32}]})",
                               "sm_90a", edit);
                auto const spec = std::find_if(kernels.begin(), kernels.end(),
                                               [](KernelSpec const& kernel) { return kernel.family == Family::kGmma; });
                REQUIRE(spec != kernels.end());
                CHECK((spec->numeric == XQAJIT_NUMERIC_FP8) == (edit == fp8_math));
                require_to_fit(*nvrtc, *spec);
                m_tiles.insert(spec->m_tile);
            }
    CHECK(m_tiles == std::set<std::uint32_t>{8, 16, 32, 64});
}

TEST_CASE("no model's gmma kernel with bf16 KV spills more than a few words on sm_90a", "[compile][models]") {
    no_spills(Family::kGmma, XQAJIT_DTYPE_BF16);
}
TEST_CASE("no model's gmma kernel with fp8 KV spills more than a few words on sm_90a", "[compile][models]") {
    no_spills(Family::kGmma, XQAJIT_DTYPE_FP8_E4M3);
}
TEST_CASE("no model's gmma kernel with int8 KV spills more than a few words on sm_90a", "[compile][models]") {
    no_spills(Family::kGmma, XQAJIT_DTYPE_INT8);
}
TEST_CASE("no model's gmma kernel with bf16 KV spills where it skips tiles", "[compile][models]") {
    no_spills(Family::kGmma, XQAJIT_DTYPE_BF16, skipping);
}
TEST_CASE("no model's gmma kernel with fp8 KV spills where it skips tiles", "[compile][models]") {
    no_spills(Family::kGmma, XQAJIT_DTYPE_FP8_E4M3, skipping);
}
TEST_CASE("no model's gmma kernel with int8 KV spills where it skips tiles", "[compile][models]") {
    no_spills(Family::kGmma, XQAJIT_DTYPE_INT8, skipping);
}

TEST_CASE("no model's gmma kernel of fp8 math spills more than a few words on sm_90a", "[compile][models]") {
    no_spills(Family::kGmma, XQAJIT_DTYPE_FP8_E4M3, fp8_math);
}

TEST_CASE("no model's fused append spills more than a few of gmma's registers on sm_90a", "[compile][models]") {
    for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
        no_spills(Family::kGmma, kv_dtype, fused_append);
}

TEST_CASE("no model's hmma kernel of one half spills on the targets that share it", "[compile][models]") { no_spills_elsewhere(0); }
TEST_CASE("no model's hmma kernel of the other half spills on the targets that share it", "[compile][models]") {
    no_spills_elsewhere(1);
}

TEST_CASE("no model's draft of 8 tokens with bf16 KV spills on sm_90a", "[compile][models][drafts]") {
    no_spills(Family::kHmma, XQAJIT_DTYPE_BF16, draft_of_8);
}
TEST_CASE("no model's draft of 8 tokens with fp8 KV spills on sm_90a", "[compile][models][drafts]") {
    no_spills(Family::kHmma, XQAJIT_DTYPE_FP8_E4M3, draft_of_8);
}
TEST_CASE("no model's draft of 8 tokens with int8 KV spills on sm_90a", "[compile][models][drafts]") {
    no_spills(Family::kHmma, XQAJIT_DTYPE_INT8, draft_of_8);
}
TEST_CASE("no model's draft of 2 tokens spills more than a few of gmma's registers on sm_90a", "[compile][models][drafts]") {
    for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
        no_spills(Family::kGmma, kv_dtype, draft_of_2);
}
TEST_CASE("no model's draft of 8 or 64 tokens with bf16 KV spills more than a few of gmma's registers on sm_90a",
          "[compile][models][drafts]") {
    for (Edit const edit : {draft_of_8, tree_of_64}) no_spills(Family::kGmma, XQAJIT_DTYPE_BF16, edit);
}
TEST_CASE("no model's draft of 8 or 64 tokens with fp8 KV spills more than a few of gmma's registers on sm_90a",
          "[compile][models][drafts]") {
    for (Edit const edit : {draft_of_8, tree_of_64}) no_spills(Family::kGmma, XQAJIT_DTYPE_FP8_E4M3, edit);
}
TEST_CASE("no model's draft of 8 or 64 tokens with int8 KV spills more than a few of gmma's registers on sm_90a",
          "[compile][models][drafts]") {
    for (Edit const edit : {draft_of_8, tree_of_64}) no_spills(Family::kGmma, XQAJIT_DTYPE_INT8, edit);
}
TEST_CASE("no model's tree of 64 tokens spills on sm_90a", "[compile][models][drafts]") {
    for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
        no_spills(Family::kHmma, kv_dtype, tree_of_64);
}
TEST_CASE("no model's draft of one half spills on the targets that share it", "[compile][models][drafts]") {
    for (Edit const edit : {draft_of_8, tree_of_64}) no_spills_elsewhere(0, edit);
}
TEST_CASE("no model's draft of the other half spills on the targets that share it", "[compile][models][drafts]") {
    for (Edit const edit : {draft_of_8, tree_of_64}) no_spills_elsewhere(1, edit);
}

// Run by hand: it takes minutes.
TEST_CASE("no model's hmma kernel spills on any target", "[.][compile][models][all]") {
    auto const nvrtc = real_nvrtc();
    for (char const* const target : kTargets) {
        if (!knows_target(*nvrtc, target)) continue;
        for (Edit const edit : {plain, draft_of_8, tree_of_64})
            for (KernelSpec const& spec : model_kernels(target, Family::kHmma, edit)) require_lean(*nvrtc, spec);
    }
}
