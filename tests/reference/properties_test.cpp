// The reference against what must hold whatever the numbers are.
#include <algorithm>
#include <limits>

#include "catch.h"
#include "reference/small_case.h"

using namespace xqajit::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<BlockResult> compute_all(ReferenceCase const& c) { return compute_reference(c, all_blocks(c)); }

bool same_bits(std::vector<BlockResult> const& a, std::vector<BlockResult> const& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](BlockResult const& x, BlockResult const& y) { return x.out == y.out && x.lse == y.lse; });
}

}  // namespace

TEST_CASE("equal keys give the plain mean of the visible values", "[reference]") {
    for (std::uint32_t const window : {0U, 1U, 5U, 100U}) {
        ReferenceCase c = small_case({});
        std::fill(c.q.begin(), c.q.end(), std::uint8_t{0});
        c.params.sliding_window = window;
        for (BlockResult const& block : compute_all(c)) {
            std::int64_t const len = c.seq_lens[block.block.request];
            std::int64_t const first = window ? std::max<std::int64_t>(0, len - window) : 0;
            for (std::size_t g = 0; g < block.lse.size(); ++g) {
                CHECK(block.lse[g] == (len ? Approx(std::log(static_cast<double>(len - first))) : Approx(-kInf)));
                for (std::uint32_t d = 0; d < c.params.head_dim; ++d) {
                    double mean = 0;
                    for (std::int64_t t = first; t < len; ++t)
                        mean +=
                            kv_value(c, true, block.block.request, t, block.block.kv_head, d) / static_cast<double>(len - first);
                    CHECK(block.out[g * c.params.head_dim + d] == Approx(mean).margin(1e-12));
                }
            }
        }
    }
}

TEST_CASE("a plain softmax written out gives the same numbers", "[reference]") {
    ReferenceCase c = small_case({});
    c.params.softcap = 1.5F;
    c.params.sinks = 1;
    c.sinks = {0.5F, -3, 2, 0, 1, -1};
    for (BlockResult const& block : compute_all(c)) {
        for (std::uint32_t g = 0; g < c.group(); ++g) {
            std::uint32_t const head = block.block.kv_head * c.group() + g;
            double z = std::exp(static_cast<double>(c.sinks[head]));
            std::vector<double> sum(c.params.head_dim);
            for (std::int64_t t = 0; t < c.seq_lens[block.block.request]; ++t) {
                double dot = 0;
                for (std::uint32_t d = 0; d < c.params.head_dim; ++d) {
                    std::int64_t const at = block.block.request * c.q_stride_row + head * c.q_stride_head + d;
                    dot += decode(XQAJIT_DTYPE_BF16, load_bits(c.q.data(), at, 2)) *
                           kv_value(c, false, block.block.request, t, block.block.kv_head, d);
                }
                double const p = std::exp(1.5 * std::tanh(dot / 4 / 1.5));  // head_dim 16: scale 1/4
                z += p;
                for (std::uint32_t d = 0; d < c.params.head_dim; ++d)
                    sum[d] += p * kv_value(c, true, block.block.request, t, block.block.kv_head, d);
            }
            CHECK(block.lse[g] == Approx(std::log(z)));
            for (std::uint32_t d = 0; d < c.params.head_dim; ++d)
                CHECK(block.out[g * c.params.head_dim + d] == Approx(sum[d] / z).margin(1e-12));
        }
    }
}

TEST_CASE("two parts of a request merge by their lse into the whole", "[reference][W43]") {
    ReferenceCase const whole = small_case({.lens = {40}});
    for (std::int32_t const cut : {8, 16, 32}) {
        ReferenceCase head = whole;
        head.seq_lens = {cut};
        ReferenceCase tail = whole;
        tail.seq_lens = {40 - cut};
        tail.page_table.erase(tail.page_table.begin(), tail.page_table.begin() + cut / 8);
        auto const all = compute_all(whole);
        auto const a = compute_all(head);
        auto const b = compute_all(tail);
        for (std::size_t n = 0; n < all.size(); ++n) {
            for (std::size_t g = 0; g < all[n].lse.size(); ++g) {
                double const wa = std::exp(a[n].lse[g] - all[n].lse[g]);
                double const wb = std::exp(b[n].lse[g] - all[n].lse[g]);
                CHECK(wa + wb == Approx(1));
                for (std::size_t d = g * 16; d < (g + 1) * 16; ++d)
                    CHECK(all[n].out[d] == Approx(wa * a[n].out[d] + wb * b[n].out[d]).margin(1e-12));
            }
        }
    }
}

TEST_CASE("where a page lies in the pool changes no bit", "[reference]") {
    ReferenceCase const before = small_case({});
    ReferenceCase after = before;
    after.k.pool = std::make_shared<Bytes>(*before.k.pool);
    after.v.pool = std::make_shared<Bytes>(*before.v.pool);
    std::size_t const page_bytes = static_cast<std::size_t>(before.k.stride_page) * 2;
    auto const pages = static_cast<std::int32_t>(before.page_table.size());
    for (std::size_t n = 0; n < before.page_table.size(); ++n) {
        std::int32_t const from = before.page_table[n];
        std::int32_t const to = (from + 2) % pages;
        after.page_table[n] = to;
        for (auto const& [source, target] : {std::pair{before.k.pool, after.k.pool}, {before.v.pool, after.v.pool}})
            std::copy_n(source->begin() + static_cast<std::ptrdiff_t>(from * page_bytes), page_bytes,
                        target->begin() + static_cast<std::ptrdiff_t>(to * page_bytes));
    }
    CHECK(same_bits(compute_all(before), compute_all(after)));
}

TEST_CASE("what no row sees is never read", "[reference][W07][W09]") {
    ReferenceCase const clean = small_case({});
    ReferenceCase dirty = clean;
    dirty.k.pool = std::make_shared<Bytes>(clean.k.pool->size(), std::uint8_t{0xFF});
    dirty.v.pool = std::make_shared<Bytes>(clean.v.pool->size(), std::uint8_t{0xFF});
    for (std::uint32_t b = 0; b < clean.batch; ++b) {
        for (std::int64_t t = 0; t < clean.seq_lens[b]; ++t)
            for (std::uint32_t h = 0; h < clean.params.num_kv_heads; ++h)
                for (bool const of_v : {false, true}) {
                    auto const at = static_cast<std::ptrdiff_t>(kv_row(clean, of_v, b, 0, t, h) * 2);
                    Bytes const& source = of_v ? *clean.v.pool : *clean.k.pool;
                    Bytes& target = of_v ? *dirty.v.pool : *dirty.k.pool;
                    std::copy_n(source.begin() + at, clean.params.head_dim * 2, target.begin() + at);
                }
        for (std::uint32_t n = (static_cast<std::uint32_t>(clean.seq_lens[b]) + 7) / 8; n < clean.max_pages; ++n)
            dirty.page_table[b * clean.max_pages + n] = -1;
    }
    CHECK(same_bits(compute_all(clean), compute_all(dirty)));
}

TEST_CASE("a linear draft is that many plain steps", "[reference][W05][W32]") {
    for (std::uint32_t const window : {0U, 4U}) {
        ReferenceCase draft = small_case({.q_len = 5, .spec_dec = XQAJIT_SPEC_DEC_LINEAR, .lens = {30, 3, 5}});
        draft.params.sliding_window = window;
        auto const drafted = compute_all(draft);
        for (std::uint32_t i = 0; i < 5; ++i) {
            ReferenceCase step = draft;
            step.params.spec_dec = XQAJIT_SPEC_DEC_NONE;
            step.params.q_len = step.q_len = 1;
            step.q.clear();
            for (std::uint32_t b = 0; b < draft.batch; ++b) {
                step.seq_lens[b] = std::max(0, draft.seq_lens[b] - 5 + static_cast<std::int32_t>(i) + 1);
                auto const row = draft.q.begin() + static_cast<std::ptrdiff_t>((b * 5 + i) * draft.q_stride_row * 2);
                step.q.insert(step.q.end(), row, row + draft.q_stride_row * 2);
            }
            auto const stepped = compute_all(step);
            for (std::size_t n = 0; n < stepped.size(); ++n) {
                std::size_t const group = draft.group();
                CHECK(std::equal(stepped[n].lse.begin(), stepped[n].lse.end(),
                                 drafted[n].lse.begin() + static_cast<std::ptrdiff_t>(i * group)));
                CHECK(std::equal(stepped[n].out.begin(), stepped[n].out.end(),
                                 drafted[n].out.begin() + static_cast<std::ptrdiff_t>(i * group * 16)));
            }
        }
    }
}

TEST_CASE("a tree whose mask is causal is a linear draft, whatever its own bit says", "[reference]") {
    ReferenceCase const linear = small_case({.q_len = 4, .spec_dec = XQAJIT_SPEC_DEC_LINEAR, .lens = {30, 4, 9}});
    for (bool const own_bit : {true, false}) {
        ReferenceCase tree = linear;
        tree.params.spec_dec = XQAJIT_SPEC_DEC_TREE;
        tree.mask_stride_row = 2;
        for (std::int64_t row = 0; row < tree.rows(); ++row) {
            tree.packed_mask.push_back((1U << (row % 4 + own_bit)) - 1 + 0xFFFFFFF0U);  // bits past the draft are ignored
            tree.packed_mask.push_back(0xFFFFFFFF);
        }
        CHECK(same_bits(compute_all(linear), compute_all(tree)));
    }
}

TEST_CASE("requests of a ragged draft are computed as if alone", "[reference][A09]") {
    ReferenceCase ragged = small_case({.q_len = 4, .spec_dec = XQAJIT_SPEC_DEC_LINEAR, .lens = {30, 4, 9}});
    ragged.cu_q_len = {0, 3, 3, 7};
    auto const all = compute_all(ragged);
    for (std::uint32_t b = 0; b < 3; ++b) {
        std::int64_t const rows = ragged.rows_of(b);
        ReferenceCase alone = ragged;
        alone.batch = 1;
        alone.cu_q_len = {0, static_cast<std::int32_t>(rows)};
        alone.seq_lens = {ragged.seq_lens[b]};
        alone.page_table.erase(alone.page_table.begin(), alone.page_table.begin() + b * ragged.page_table_stride);
        alone.q.erase(alone.q.begin(),
                      alone.q.begin() + static_cast<std::ptrdiff_t>(ragged.first_row(b) * ragged.q_stride_row * 2));
        auto const one = compute_all(alone);
        for (std::uint32_t h = 0; h < 2; ++h) {
            CHECK(one[h].out.size() == static_cast<std::size_t>(rows) * 3 * 16);
            CHECK(one[h].out == all[b * 2 + h].out);
        }
    }
}

TEST_CASE("a query head is computed as if alone", "[reference]") {
    for (auto const& [group, q_len] : {std::pair{3U, 1U}, {16U, 1U}, {20U, 1U}, {1U, 40U}, {3U, 7U}}) {
        ReferenceCase const all =
            small_case({.kv_heads = 1, .group = group, .q_len = q_len, .spec_dec = XQAJIT_SPEC_DEC_LINEAR, .lens = {50, 3}});
        auto const together = compute_all(all);
        for (std::uint32_t g = 0; g < group; ++g) {
            ReferenceCase one = all;
            one.params.num_q_heads = 1;
            one.q.erase(one.q.begin(), one.q.begin() + static_cast<std::ptrdiff_t>(g * all.q_stride_head * 2));
            auto const alone = compute_all(one);
            INFO("group " << group << ", q_len " << q_len << ", head " << g);
            for (std::uint32_t b = 0; b < 2; ++b)
                for (std::uint32_t row = 0; row < q_len; ++row) {
                    CHECK(alone[b].lse[row] == together[b].lse[row * group + g]);
                    CHECK(alone[b].magnitude[row] == together[b].magnitude[row * group + g]);
                    CHECK(std::equal(alone[b].out.begin() + row * 16, alone[b].out.begin() + (row + 1) * 16,
                                     together[b].out.begin() + (row * group + g) * 16));
                }
        }
    }
}

TEST_CASE("a beam whose indirection is constant reads that beam", "[reference]") {
    ReferenceCase plain = small_case({.lens = {24, 24, 24}});
    ReferenceCase beams = plain;
    beams.params.beam_width = 3;
    beams.batch = 1;
    beams.capacity = 24;
    beams.seq_lens = {24};
    beams.ctx_lens = {0};
    beams.cache_indirection.assign(3 * 24, 0);
    for (std::size_t w = 0; w < 3; ++w)
        std::fill_n(beams.cache_indirection.begin() + static_cast<std::ptrdiff_t>(w * 24), 24, static_cast<int>(2 - w));
    // Each beam's query is that of the plain request whose KV it reads.
    for (std::ptrdiff_t w = 0; w < 3; ++w)
        std::copy_n(plain.q.begin() + (2 - w) * plain.q_stride_row * 2, plain.q_stride_row * 2,
                    beams.q.begin() + w * plain.q_stride_row * 2);
    auto const by_request = compute_all(plain);
    auto const by_beam = compute_all(beams);
    for (std::uint32_t h = 0; h < 2; ++h)
        for (std::uint32_t w = 0; w < 3; ++w)
            CHECK(std::equal(by_request[(2 - w) * 2 + h].out.begin(), by_request[(2 - w) * 2 + h].out.end(),
                             by_beam[h].out.begin() + static_cast<std::ptrdiff_t>(w * 3 * 16)));
    // Before the end of the context every beam reads beam 0.
    beams.ctx_lens = {24};
    auto const context = compute_all(beams);
    CHECK(std::equal(by_request[0].lse.begin(), by_request[0].lse.end(),
                     compute_all([&] {
                         ReferenceCase c = beams;
                         c.q = plain.q;
                         return c;
                     }())[0]
                         .lse.begin()));
    CHECK(!same_bits(context, by_beam));
}

TEST_CASE("scales, sinks and empty rows follow their closed forms", "[reference][W16][W39]") {
    ReferenceCase c = small_case({.kv_heads = 1, .group = 4, .lens = {64, 0}});
    std::fill(c.q.begin(), c.q.end(), std::uint8_t{0});
    for (std::size_t n = 0; n < c.v.pool->size() / 2; ++n)
        store_bits(c.v.pool->data(), static_cast<std::int64_t>(n), 2, 0x3F80);  // 1
    c.params.sinks = 1;
    c.sinks = {-5, 0, 3, 10};
    c.v_scale = 2;
    auto const blocks = compute_all(c);
    for (std::uint32_t g = 0; g < 4; ++g) {
        double const sink = std::exp(static_cast<double>(c.sinks[g]));
        CHECK(blocks[0].out[g * 16] == Approx(2 * 64 / (64 + sink)));
        CHECK(blocks[0].lse[g] == Approx(std::log(64 + sink)));
        CHECK(blocks[1].out[g * 16] == 0);
        CHECK(blocks[1].lse[g] == Approx(c.sinks[g]));
    }
    c.params.sinks = 0;
    CHECK(compute_all(c)[1].lse[0] == -kInf);
}

TEST_CASE("the number of threads changes no bit", "[reference]") {
    ReferenceCase const c = small_case({.kv_heads = 3, .group = 20, .q_len = 3, .spec_dec = XQAJIT_SPEC_DEC_LINEAR});
    CHECK(same_bits(compute_reference(c, all_blocks(c), 1), compute_reference(c, all_blocks(c), 7)));
}

TEST_CASE("numeric fp8 is emulated beside the exact result, and changes nothing where q and the weights are exact in e4m3",
          "[reference]") {
    SmallShape shape;
    shape.lens = {1, 0, 1};  // one token: its weight is the largest
    ReferenceCase c = small_case(shape);
    CHECK(compute_all(c)[0].fp8_out.empty());
    c.params.numeric = XQAJIT_NUMERIC_FP8;
    for (BlockResult const& block : compute_all(c)) {
        CHECK(block.fp8_out.size() == block.out.size());
        for (std::size_t n = 0; n < block.out.size(); ++n) CHECK(block.fp8_out[n] == Approx(block.out[n]).margin(1e-12));
    }
    c = small_case({});
    c.params.numeric = XQAJIT_NUMERIC_FP8;
    BlockResult const block = compute_all(c)[0];
    double error = 0;
    double norm = 0;
    for (std::size_t n = 0; n < block.out.size(); ++n) {
        error += (block.fp8_out[n] - block.out[n]) * (block.fp8_out[n] - block.out[n]);
        norm += block.out[n] * block.out[n];
    }
    // Three bits of mantissa: each factor is off by a sixteenth at most.
    CHECK(std::sqrt(error / norm) > 1e-3);
    CHECK(std::sqrt(error / norm) < 0.125);
}

TEST_CASE("doubling q in e4m3's range doubles what is rounded: the scale of a row is its own", "[reference]") {
    ReferenceCase c = small_case({});
    c.params.numeric = XQAJIT_NUMERIC_FP8;
    ReferenceCase doubled = c;
    for (std::size_t n = 0; n < c.q.size() / 2; ++n) {
        auto const at = static_cast<std::int64_t>(n);
        double const value = decode(XQAJIT_DTYPE_BF16, load_bits(c.q.data(), at, 2));
        store_bits(doubled.q.data(), at, 2, encode(XQAJIT_DTYPE_BF16, 1024 * value));
    }
    doubled.params.qk_scale /= 1024;
    std::vector<BlockResult> const a = compute_all(c), b = compute_all(doubled);
    for (std::size_t n = 0; n < a.size(); ++n)
        for (std::size_t i = 0; i < a[n].fp8_out.size(); ++i) CHECK(b[n].fp8_out[i] == Approx(a[n].fp8_out[i]).margin(1e-12));
}
