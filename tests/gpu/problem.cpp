#include "gpu/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "gpu/content.h"
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
