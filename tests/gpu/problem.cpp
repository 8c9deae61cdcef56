#include "gpu/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "gpu/shape_text.h"
#include "reference/codec.h"

namespace xqajit::testing {
namespace {

constexpr std::uint32_t kLayers = 3;
constexpr std::int64_t kIntMax = 0x7FFFFFFF;

// Strides and offset of one tensor whose pages hold `page_tokens` tokens; `pages` of its own.
KvView make_view(ProblemSpec const& spec, std::uint32_t dim, std::int64_t page_tokens, std::uint32_t padding) {
    std::int64_t const unit = 16 / bytes_of(spec.params.kv_dtype);
    std::int64_t const pad = padding * unit;
    std::int64_t const heads = spec.params.num_kv_heads;
    KvView view;
    if (spec.layout == Layout::kNhd) {
        view.stride_head = dim + pad;
        view.stride_token = heads * view.stride_head + pad;
        view.stride_page = page_tokens * view.stride_token + pad;
    } else {
        view.stride_token = dim + pad;
        view.stride_head = page_tokens * view.stride_token + pad;
        view.stride_page = heads * view.stride_head + pad;
    }
    return view;
}

std::shared_ptr<Bytes> make_pool(ProblemSpec const& spec, std::int32_t dtype, std::int64_t elements) {
    std::uint32_t const bytes = bytes_of(dtype);
    std::uint32_t bits = 0xFFFF;
    if (spec.unseen == Unseen::kZero) bits = 0;
    if (spec.unseen == Unseen::kInfinity && bytes == 2) bits = dtype == XQAJIT_DTYPE_FP16 ? 0x7C00 : 0x7F80;
    if (spec.unseen != Unseen::kZero && dtype == XQAJIT_DTYPE_INT8) bits = 0x7F;
    auto pool = std::make_shared<Bytes>(static_cast<std::size_t>(elements) * bytes, static_cast<std::uint8_t>(bits));
    if (bytes == 2 && (bits & 0xFF) != bits >> 8)
        for (std::int64_t n = 0; n < elements; ++n) store_bits(pool->data(), n, 2, bits);
    return pool;
}

void make_pools(ReferenceCase& c, ProblemSpec const& spec, std::int64_t pages, std::int64_t page_tokens) {
    xqajit_params const& p = c.params;
    c.k = make_view(spec, p.head_dim, page_tokens, spec.padding);
    c.v = p.mla ? c.k : make_view(spec, p.head_dim_v, page_tokens, spec.padding ? spec.padding + 1 : 0);
    if (spec.pooling == Pooling::kInterleaved && !p.mla) {
        c.v.offset = c.k.stride_page;
        c.k.stride_page = c.v.stride_page = c.k.stride_page + c.v.stride_page;
        c.k.pool = c.v.pool = make_pool(spec, p.kv_dtype, pages * c.k.stride_page);
        return;
    }
    for (KvView* const view : {&c.k, &c.v}) {
        if (spec.pooling == Pooling::kLayerMajor) {
            view->offset = view->stride_page;  // the middle layer
            view->stride_page *= kLayers;
        }
        view->pool = make_pool(spec, p.kv_dtype, pages * view->stride_page);
        if (p.mla) break;
    }
}

std::int32_t tail_entry(TableTail tail, Random& random) {
    switch (tail) {
        case TableTail::kMinusOne:
            return -1;
        case TableTail::kIntMax:
            return 0x7FFFFFFF;
        case TableTail::kZero:
            return 0;
        case TableTail::kRandom:
            return static_cast<std::int32_t>(random.next());
    }
    return -1;
}

// Page tables over `pages` pool pages; page 0 stays unused, so that a kernel that falls back to it reads NaN.
std::vector<std::int32_t> make_table(ReferenceCase const& c, ProblemSpec const& spec, std::int64_t pages, Random& random) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(pages - 1));
    std::iota(ids.begin(), ids.end(), 1);
    random.shuffle(ids);
    std::size_t next = 0;
    std::vector<std::int32_t> table(std::size_t{c.batch} * c.params.beam_width * static_cast<std::size_t>(c.page_table_stride));
    for (std::size_t row = 0; row < std::size_t{c.batch} * c.params.beam_width; ++row) {
        std::int64_t const used =
            (c.seq_lens[row / c.params.beam_width] + std::int64_t{c.params.page_size} - 1) / c.params.page_size;
        for (std::int64_t n = 0; n < c.page_table_stride; ++n)
            table[row * static_cast<std::size_t>(c.page_table_stride) + static_cast<std::size_t>(n)] =
                n < used ? ids[next++ % ids.size()] : tail_entry(spec.tail, random);
    }
    return table;
}

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

// input_kv: q moves to qkv, beside new K and V.
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
    c.cos_sin.reserve(static_cast<std::size_t>(c.max_pos) * p.rotary_dim);
    for (std::int64_t position = 0; position < c.max_pos; ++position)
        for (std::uint32_t i = 0; i < p.rotary_dim / 2; ++i) {
            double const angle = static_cast<double>(position) * std::pow(10000.0, -2.0 * i / p.rotary_dim);
            c.cos_sin.push_back(static_cast<float>(std::cos(angle)));
            c.cos_sin.push_back(static_cast<float>(std::sin(angle)));
        }
}

double q_sigma(ProblemSpec const& spec) {
    if (spec.draw == Draw::kLarge) return spec.params.q_dtype == XQAJIT_DTYPE_FP16 ? 40 : 150;
    if (spec.draw == Draw::kEqualLarge) return 2000;
    return 1;
}

char const* name_of_draw(Draw draw) {
    constexpr char const* kNames[] = {"gaussian",        "equal-keys", "equal-large", "dominant-first", "dominant-last",
                                      "dominant-middle", "ramp",       "large",       "peaked"};
    return kNames[static_cast<int>(draw)];
}

}  // namespace

ReferenceCase build_case(ProblemSpec const& given) {
    ProblemSpec spec = given;
    spec.params = with_defaults(given.params);
    Random random(spec.seed);
    ReferenceCase c;
    c.params = spec.params;
    xqajit_params const& p = c.params;
    c.batch = static_cast<std::uint32_t>(spec.lens.size());
    c.q_len = p.q_len;
    c.seq_lens = spec.lens;
    c.k_scale = spec.k_scale;
    c.v_scale = spec.v_scale;
    c.out_scale_rcp = spec.out_scale_rcp;
    if (!spec.q_lens.empty()) {
        c.cu_q_len.push_back(0);
        for (std::int32_t const n : spec.q_lens) c.cu_q_len.push_back(c.cu_q_len.back() + n);
    }
    c.q_stride_head = p.head_dim + spec.row_padding;
    c.q_stride_row = p.num_q_heads * c.q_stride_head + spec.row_padding;
    c.out_stride_head = p.head_dim_v + spec.row_padding;
    c.out_stride_row = p.num_q_heads * c.out_stride_head + spec.row_padding;

    std::int64_t const longest = spec.lens.empty() ? 0 : *std::max_element(spec.lens.begin(), spec.lens.end());
    std::int64_t const sequences = std::int64_t{c.batch} * p.beam_width;
    std::int64_t pages = std::max<std::int64_t>(sequences, 1);
    std::int64_t page_tokens = p.page_size;
    if (p.page_size) {
        c.max_pages = static_cast<std::uint32_t>((longest + p.page_size - 1) / p.page_size + spec.spare_table_entries);
        c.page_table_stride = c.max_pages + spec.spare_table_entries;
        std::int64_t used = 0;
        for (std::int32_t const len : spec.lens) used += (std::int64_t{len} + p.page_size - 1) / p.page_size * p.beam_width;
        if (spec.max_pool_pages) used = std::min<std::int64_t>(used, static_cast<std::int64_t>(spec.max_pool_pages));
        pages = used + 3;
        c.capacity = std::int64_t{c.max_pages} * p.page_size;
        c.page_table = make_table(c, spec, pages, random);
        if (spec.own_v_table && !p.mla) c.v_page_table = make_table(c, spec, pages, random);
    } else {
        c.capacity = page_tokens = std::max<std::int64_t>({spec.capacity, longest, 1});
    }
    if (p.beam_width > 1) {
        for (std::int32_t const len : spec.lens) c.ctx_lens.push_back(static_cast<std::int32_t>(random.between(0, len)));
        for (std::int64_t row = 0; row < sequences; ++row)
            for (std::int64_t t = 0; t < c.capacity; ++t) {
                std::size_t const b = static_cast<std::size_t>(row) / p.beam_width;
                bool const used = t >= c.ctx_lens[b] && t < c.seq_lens[b];
                c.cache_indirection.push_back(static_cast<std::int32_t>(used ? random.between(0, p.beam_width - 1) : kIntMax));
            }
    }
    if (p.spec_dec == XQAJIT_SPEC_DEC_TREE) {
        c.mask_stride_row = (p.q_len + 31) / 32;
        for (std::int64_t n = 0; n < c.rows() * c.mask_stride_row; ++n)
            c.packed_mask.push_back(static_cast<std::uint32_t>(random.next() & random.next()));
    }
    if (p.sinks)
        for (std::uint32_t h = 0; h < p.num_q_heads; ++h) c.sinks.push_back(static_cast<float>(random.between(-50, 100)) / 10);

    c.q.assign(static_cast<std::size_t>(c.rows() * p.beam_width * c.q_stride_row) * bytes_of(p.q_dtype), 0xFF);
    GaussianFill const q_fill(p.q_dtype, q_sigma(spec));
    for (std::int64_t row = 0; row < c.rows() * p.beam_width; ++row)
        for (std::uint32_t h = 0; h < p.num_q_heads; ++h)
            q_fill.fill(random, c.q.data(), row * c.q_stride_row + h * c.q_stride_head, p.head_dim);
    make_pools(c, spec, pages, page_tokens);
    fill_kv(c, spec, random);
    apply_draw(c, spec, random);
    if (p.input_kv) move_to_qkv(c, spec, random);
    return c;
}

std::string to_string(ProblemSpec const& spec) {
    constexpr char const* kPoolings[] = {"separate", "interleaved", "layer-major"};
    std::string lens =
        spec.lens.size() > 24 ? fmt::format("{} lengths", spec.lens.size()) : fmt::format("{}", fmt::join(spec.lens, ","));
    std::string text =
        fmt::format("{} lens [{}] {} {} pad {}/{} draw {} seed {} division {} split {} scales {} {} {}", shape_json(spec.params),
                    lens, spec.layout == Layout::kNhd ? "NHD" : "HND", kPoolings[static_cast<int>(spec.pooling)], spec.padding,
                    spec.row_padding, name_of_draw(spec.draw), spec.seed, spec.params.division, spec.params.nb_sub_seq,
                    spec.k_scale, spec.v_scale, spec.out_scale_rcp);
    if (!spec.q_lens.empty()) text += fmt::format(" q_lens [{}]", fmt::join(spec.q_lens, ","));
    if (spec.own_v_table) text += " own-v-table";
    return text;
}

void set_kv(ReferenceCase& c, bool of_v, std::uint32_t request, std::int64_t token, std::uint32_t kv_head, std::uint32_t d,
            double value) {
    KvView const& view = of_v ? c.v : c.k;
    double const scale = of_v ? c.v_scale : c.k_scale;
    for (std::uint32_t w = 0; w < c.params.beam_width; ++w)
        store_bits(view.pool->data(), kv_row(c, of_v, request, w, token, kv_head) + d, bytes_of(c.params.kv_dtype),
                   encode(c.params.kv_dtype, value / scale));
}

void set_q(ReferenceCase& c, double value) {
    std::uint32_t const bits = encode(c.params.q_dtype, value);
    for (std::size_t n = 0; n < c.q.size() / 2; ++n) store_bits(c.q.data(), static_cast<std::int64_t>(n), 2, bits);
}

}  // namespace xqajit::testing
