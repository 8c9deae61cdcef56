#include "gpu/content.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "reference/append.h"
#include "reference/codec.h"

namespace xqajit::testing {
namespace {

// Visits every (request, beam, token) that some row sees and that is in the cache before the launch.
template <class F> void for_each_seen(ReferenceCase const& c, F const& f) {
    std::vector<char> seen;
    for (std::uint32_t b = 0; b < c.batch; ++b) {
        seen.assign(static_cast<std::size_t>(c.seq_lens[b]), 0);
        for (std::int64_t i = 0; i < c.rows_of(b); ++i)
            for (std::int64_t const t : visible_tokens(c, b, i)) seen[static_cast<std::size_t>(t)] = 1;
        // The launch stores the newest token itself: what was in its slot must not be read.
        std::int64_t const given = c.seq_lens[b] - (c.params.input_kv ? 1 : 0);
        for (std::uint32_t w = 0; w < c.params.beam_width; ++w)
            for (std::int64_t t = 0; t < given; ++t)
                if (seen[static_cast<std::size_t>(t)]) f(b, w, t);
    }
}

// K of (b, t, h) along that request's first query of the head's group, so that its score there is `score`.
void aim_key(ReferenceCase& c, std::uint32_t b, std::int64_t t, std::uint32_t h, double score) {
    xqajit_params const& p = c.params;
    std::int64_t const q_row = c.first_row(b) * p.beam_width * c.q_stride_row + h * c.group() * c.q_stride_head;
    std::vector<double> q(p.head_dim);
    double norm2 = 0;
    for (std::uint32_t d = 0; d < p.head_dim; ++d) {
        q[d] = decode(p.q_dtype, load_bits(c.q.data(), q_row + d, bytes_of(p.q_dtype)));
        norm2 += q[d] * q[d];
    }
    for (std::uint32_t d = 0; d < p.head_dim; ++d)
        set_kv(c, false, b, t, h, d, q[d] * score / (norm2 * static_cast<double>(p.qk_scale)));
}

// Query rows that share a KV head look at the same keys, more or less: each is the launch's first one of that head and a quarter of what
// was drawn for it. All requests', so that keys aimed at one of them hold where requests share pages.
void gather_queries(ReferenceCase& c) {
    xqajit_params const& p = c.params;
    for (std::int64_t row = 0; row < c.rows() * p.beam_width; ++row)
        for (std::uint32_t head = 0; head < p.num_q_heads; ++head) {
            std::int64_t const first = head / c.group() * c.group() * c.q_stride_head;
            std::int64_t const own = row * c.q_stride_row + head * c.q_stride_head;
            for (std::uint32_t d = 0; own != first && d < p.head_dim; ++d) {
                auto const value = [&](std::int64_t at) { return double{decode(p.q_dtype, load_bits(c.q.data(), at + d, 2))}; };
                store_bits(c.q.data(), own + d, 2, encode(p.q_dtype, value(first) + value(own) / 4));
            }
        }
}

// The heaviest first by weight, at random places: scores of 16, 16 - ln 2, 16 - ln 3 ..., among others of a standard deviation of 1.
void aim_peaks(ReferenceCase& c, std::uint32_t request, std::vector<std::int64_t> const& seen, Random& random) {
    constexpr std::size_t kTokensAPeak = 512;
    for (std::uint32_t h = 0; h < c.params.num_kv_heads; ++h) {
        std::vector<std::size_t> ranks((seen.size() + kTokensAPeak - 1) / kTokensAPeak);
        std::iota(ranks.begin(), ranks.end(), std::size_t{0});
        random.shuffle(ranks);
        for (std::size_t n = 0; n < ranks.size(); ++n) {
            auto const last = static_cast<std::int64_t>(std::min(seen.size(), (n + 1) * kTokensAPeak)) - 1;
            auto const at = static_cast<std::size_t>(random.between(static_cast<std::int64_t>(n * kTokensAPeak), last));
            aim_key(c, request, seen[at], h, 16 - std::log(static_cast<double>(ranks[n] + 1)));
        }
    }
}

}  // namespace

void fill_kv(ReferenceCase& c, ProblemSpec const& spec, Random& random) {
    xqajit_params const& p = c.params;
    GaussianFill const k_fill(p.kv_dtype, 1 / static_cast<double>(spec.k_scale));
    GaussianFill const v_fill(p.kv_dtype, 1 / static_cast<double>(spec.v_scale));
    std::uint32_t const bytes = bytes_of(p.kv_dtype);
    // A row is filled once, however many requests share it: one mark for each element row, by its distance in rows of 16 bytes.
    std::vector<bool> k_done(c.k.pool->size() / 16 + 1);
    std::vector<bool> v_done(p.mla ? 0 : c.v.pool->size() / 16 + 1);
    for_each_seen(c, [&](std::uint32_t b, std::uint32_t w, std::int64_t t) {
        for (std::uint32_t h = 0; h < p.num_kv_heads; ++h) {
            std::int64_t const k_row = kv_row(c, false, b, w, t, h);
            auto const k_mark = static_cast<std::size_t>(k_row) * bytes / 16;
            if (!k_done[k_mark]) k_fill.fill(random, c.k.pool->data(), k_row, p.head_dim);
            k_done[k_mark] = true;
            if (p.mla) continue;
            std::int64_t const v_row = kv_row(c, true, b, w, t, h);
            auto const v_mark = static_cast<std::size_t>(v_row) * bytes / 16;
            if (!v_done[v_mark]) v_fill.fill(random, c.v.pool->data(), v_row, p.head_dim_v);
            v_done[v_mark] = true;
        }
    });
}

void apply_draw(ReferenceCase& c, ProblemSpec const& spec, Random& random) {
    xqajit_params const& p = c.params;
    if (spec.draw == Draw::kPeaked) gather_queries(c);
    if (spec.draw == Draw::kEqualKeys) set_q(c, 0);
    if (spec.draw == Draw::kEqualLarge) {
        std::vector<double> key(p.head_dim);
        for (double& x : key) x = random.chance(0.5) ? 2 : -2;
        for_each_seen(c, [&](std::uint32_t b, std::uint32_t, std::int64_t t) {
            for (std::uint32_t h = 0; h < p.num_kv_heads; ++h)
                for (std::uint32_t d = 0; d < p.head_dim; ++d) set_kv(c, false, b, t, h, d, key[d]);
        });
    }
    if (spec.draw != Draw::kDominantFirst && spec.draw != Draw::kDominantLast && spec.draw != Draw::kDominantMiddle &&
        spec.draw != Draw::kRamp && spec.draw != Draw::kPeaked)
        return;
    std::uint64_t aimed = 0;  // tokens
    for (std::uint32_t b = 0; b < c.batch; ++b) {
        std::int64_t const len = c.seq_lens[b];
        if (c.rows_of(b) == 0 || len == 0) continue;
        std::vector<std::int64_t> const seen = visible_tokens(c, b, c.rows_of(b) - 1);
        if (seen.empty()) continue;
        bool const has_own_pages = spec.max_pool_pages == 0 || aimed < spec.max_pool_pages * p.page_size;
        if (spec.draw == Draw::kPeaked && has_own_pages) aim_peaks(c, b, seen, random);
        aimed += static_cast<std::uint64_t>(len);
        for (std::uint32_t h = 0; h < p.num_kv_heads; ++h) {
            std::int64_t const middle = len > 512 ? 512 : len / 2;
            if (spec.draw == Draw::kDominantFirst) aim_key(c, b, seen.front(), h, 25);
            if (spec.draw == Draw::kDominantLast) aim_key(c, b, seen.back(), h, 25);
            if (spec.draw == Draw::kDominantMiddle && middle >= seen.front()) aim_key(c, b, middle, h, 25);
            if (spec.draw == Draw::kRamp)
                for (std::int64_t const t : seen) aim_key(c, b, t, h, 40.0 * static_cast<double>(t + 1) / static_cast<double>(len));
        }
    }
}

void move_to_qkv(ReferenceCase& c, ProblemSpec const& spec, Random& random) {
    xqajit_params const& p = c.params;
    std::uint32_t const bytes = bytes_of(p.q_dtype), heads = p.num_q_heads + 2 * p.num_kv_heads;
    c.qkv_stride_head = p.head_dim + spec.row_padding;
    c.qkv_stride_row = heads * c.qkv_stride_head + spec.row_padding;
    c.qkv.assign(static_cast<std::size_t>(c.batch * c.qkv_stride_row) * bytes, 0xFF);
    GaussianFill const fill(p.q_dtype, 1);
    for (std::uint32_t b = 0; b < c.batch; ++b)
        for (std::uint32_t h = 0; h < heads; ++h) {
            std::int64_t const to = b * c.qkv_stride_row + h * c.qkv_stride_head;
            if (h < p.num_q_heads)
                std::memcpy(c.qkv.data() + to * bytes, c.q.data() + (b * c.q_stride_row + h * c.q_stride_head) * bytes,
                            std::size_t{p.head_dim} * bytes);
            else
                fill.fill(random, c.qkv.data(), to, p.head_dim);
        }
    c.q.clear();
    c.q_stride_row = c.q_stride_head = 0;
    if (p.rope_style == XQAJIT_ROPE_NONE) return;
    c.max_pos = c.capacity;
    c.cos_sin = rope_angles(c.max_pos, p.rotary_dim, 10000);
}

}  // namespace xqajit::testing
