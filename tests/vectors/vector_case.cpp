#include "vectors/vector_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "reference/codec.h"

namespace xqajit::testing {
namespace {

using nlohmann::json;

// Nested or flat numbers, appended in order.
template <class T> void flatten(json const& value, std::vector<T>& out) {
    if (value.is_array()) {
        for (json const& element : value) flatten(element, out);
    } else if (value.is_string() && value == "-inf") {
        out.push_back(static_cast<T>(-std::numeric_limits<double>::infinity()));
    } else {
        out.push_back(value.get<T>());
    }
}

template <class T> std::vector<T> numbers(json const& value) {
    std::vector<T> out;
    if (!value.is_null()) flatten(value, out);
    return out;
}

// NHD [pages, tokens, heads, dim] or HND [pages, heads, tokens, dim].
KvView packed_view(std::vector<std::int64_t> const& shape, bool hnd) {
    KvView view;
    view.stride_token = hnd ? shape[3] : shape[2] * shape[3];
    view.stride_head = hnd ? shape[2] * shape[3] : shape[3];
    view.stride_page = shape[1] * shape[2] * shape[3];
    return view;
}

// The expected numbers, regrouped by (request, kv head).
std::vector<BlockResult> expected_blocks(ReferenceCase const& c, std::vector<double> const& out, std::vector<double> const& lse) {
    std::vector<BlockResult> blocks;
    std::size_t const dim = c.params.head_dim_v;
    for (Block const& block : all_blocks(c)) {
        BlockResult result;
        result.block = block;
        for (std::int64_t row = 0; row < c.rows_of(block.request) * c.params.beam_width; ++row)
            for (std::uint32_t g = 0; g < c.group(); ++g) {
                auto const index =
                    static_cast<std::size_t>((c.first_row(block.request) * c.params.beam_width + row) * c.params.num_q_heads +
                                             block.kv_head * c.group() + g);
                result.lse.push_back(lse.at(index));
                result.magnitude.push_back(0);  // small scores: the plain bound holds
                if (out.size() < (index + 1) * dim) throw std::out_of_range("out is too short");
                result.out.insert(result.out.end(), out.begin() + static_cast<std::ptrdiff_t>(index * dim),
                                  out.begin() + static_cast<std::ptrdiff_t>((index + 1) * dim));
            }
        blocks.push_back(std::move(result));
    }
    return blocks;
}

Vector parse(json const& doc) {
    Vector vector;
    json const& params = doc.at("params");
    vector.name = doc.at("name");
    vector.unit = doc.at("unit");
    vector.k_scale = params.at("k_scale");
    vector.v_scale = params.at("v_scale");
    vector.interleaved = params.at("kv_interleaved");
    vector.garbage = params.at("garbage_in_unused_slots");

    ReferenceCase& c = vector.layout;
    xqajit_params& p = c.params;
    p = XQAJIT_PARAMS_INIT;
    p.num_q_heads = params.at("num_q_heads");
    p.num_kv_heads = params.at("num_kv_heads");
    p.head_dim = params.at("head_dim");
    p.head_dim_v = params.at("head_dim_v");
    p.page_size = params.at("page_size");
    p.beam_width = params.at("beam_width");
    p.mla = params.at("mla").get<bool>();
    p.sliding_window = params.at("sliding_window");
    p.softcap = params.at("softcap");
    p.qk_scale = params.at("qk_scale");
    p.lse = 1;
    std::string const spec_dec = params.at("spec_dec");
    p.spec_dec = spec_dec == "tree" ? XQAJIT_SPEC_DEC_TREE : spec_dec == "linear" ? XQAJIT_SPEC_DEC_LINEAR : XQAJIT_SPEC_DEC_NONE;

    c.seq_lens = numbers<std::int32_t>(doc.at("seq_lens"));
    c.batch = static_cast<std::uint32_t>(c.seq_lens.size());
    auto const q_lens = numbers<std::int32_t>(doc.at("q_lens"));
    c.q_len = static_cast<std::uint32_t>(*std::max_element(q_lens.begin(), q_lens.end()));
    p.q_len = c.q_len;
    if (std::any_of(q_lens.begin(), q_lens.end(), [&](std::int32_t n) { return n != q_lens.front(); })) {
        c.cu_q_len.push_back(0);
        for (std::int32_t const n : q_lens) c.cu_q_len.push_back(c.cu_q_len.back() + n);
    }
    c.page_table = numbers<std::int32_t>(doc.at("page_table"));
    c.v_page_table = numbers<std::int32_t>(doc.at("v_page_table"));
    c.max_pages = static_cast<std::uint32_t>(c.page_table.size() / (std::size_t{c.batch} * p.beam_width));
    c.page_table_stride = c.max_pages;
    c.sinks = numbers<float>(doc.at("sinks"));
    p.sinks = !c.sinks.empty();
    c.packed_mask = numbers<std::uint32_t>(doc.at("packed_mask"));
    c.mask_stride_row = c.packed_mask.empty() ? 0 : static_cast<std::int64_t>(c.packed_mask.size()) / c.rows();
    c.ctx_lens = numbers<std::int32_t>(doc.at("ctx_lens"));
    c.cache_indirection = numbers<std::int32_t>(doc.at("cache_indirection"));
    c.q_stride_head = p.head_dim;
    c.q_stride_row = std::int64_t{p.num_q_heads} * p.head_dim;
    c.out_stride_head = p.head_dim_v;
    c.out_stride_row = std::int64_t{p.num_q_heads} * p.head_dim_v;

    bool const hnd = params.at("kv_layout") == "HND";
    auto const k_shape = numbers<std::int64_t>(doc.at("k_shape"));
    auto const v_shape = numbers<std::int64_t>(doc.at("v_shape"));
    c.k = packed_view(k_shape, hnd);
    c.v = packed_view(v_shape, hnd);
    c.capacity = p.page_size ? std::int64_t{c.max_pages} * p.page_size : k_shape[hnd ? 2 : 1];
    vector.q = numbers<std::int32_t>(doc.at("q"));
    vector.k = numbers<std::int32_t>(doc.at("k"));
    vector.v = numbers<std::int32_t>(doc.at("v"));
    vector.expected = expected_blocks(c, numbers<double>(doc.at("out")), numbers<double>(doc.at("lse")));
    return vector;
}

Bytes encoded(std::vector<std::int32_t> const& codes, std::int32_t dtype, double unit) {
    std::uint32_t const bytes = bytes_of(dtype);
    Bytes out(codes.size() * bytes);
    for (std::size_t n = 0; n < codes.size(); ++n)
        store_bits(out.data(), static_cast<std::int64_t>(n), bytes, encode(dtype, codes[n] * unit));
    return out;
}

// K pages and V pages alternate in one pool.
void interleave(ReferenceCase& c) {
    std::size_t const page = static_cast<std::size_t>(c.k.stride_page) * bytes_of(c.params.kv_dtype);
    auto pool = std::make_shared<Bytes>();
    for (std::size_t at = 0; at < c.k.pool->size(); at += page) {
        for (Bytes const* const source : {c.k.pool.get(), c.v.pool.get()})
            pool->insert(pool->end(), source->begin() + static_cast<std::ptrdiff_t>(at),
                         source->begin() + static_cast<std::ptrdiff_t>(at + page));
    }
    c.v.offset = c.k.stride_page;
    c.k.stride_page *= 2;
    c.v.stride_page *= 2;
    c.k.pool = c.v.pool = pool;
}

// Every row of K and V that no query row sees becomes NaN (127 for int8).
void spoil_unseen(ReferenceCase& c) {
    std::uint32_t const bytes = bytes_of(c.params.kv_dtype);
    std::uint8_t const garbage = c.params.kv_dtype == XQAJIT_DTYPE_INT8 ? 0x7F : 0xFF;
    auto const before_k = c.k.pool;
    auto const before_v = c.v.pool;
    c.k.pool = std::make_shared<Bytes>(before_k->size(), garbage);
    c.v.pool = before_v == before_k ? c.k.pool : std::make_shared<Bytes>(before_v->size(), garbage);
    auto const keep = [&](Bytes const& from, Bytes& to, std::int64_t row, std::uint32_t dim) {
        std::memcpy(to.data() + row * bytes, from.data() + row * bytes, std::size_t{dim} * bytes);
    };
    for (std::uint32_t b = 0; b < c.batch; ++b)
        for (std::int64_t i = 0; i < c.rows_of(b); ++i)
            for (std::int64_t const t : visible_tokens(c, b, i))
                for (std::uint32_t w = 0; w < c.params.beam_width; ++w)
                    for (std::uint32_t h = 0; h < c.params.num_kv_heads; ++h) {
                        keep(*before_k, *c.k.pool, kv_row(c, false, b, w, t, h), c.params.head_dim);
                        keep(*before_v, *c.v.pool, kv_row(c, true, b, w, t, h), c.params.head_dim_v);
                    }
}

}  // namespace

std::string to_string(VectorTypes const& types) {
    return fmt::format("{}/{} -> {}", name_of(types.q), name_of(types.kv), name_of(types.out));
}

Result<Vector> load_vector(std::filesystem::path const& file) {
    try {
        std::ifstream stream(file);
        return parse(json::parse(stream));
    } catch (std::exception const& error) {
        return invalid_argument(fmt::format("{}: {}", file.string(), error.what()));
    }
}

bool can_take(Vector const& vector, VectorTypes const& types) {
    return bytes_of(types.kv) == 1 || (vector.k_scale == 1 && vector.v_scale == 1);
}

ReferenceCase make_case(Vector const& vector, VectorTypes const& types) {
    ReferenceCase c = vector.layout;
    c.params.q_dtype = types.q;
    c.params.kv_dtype = types.kv;
    c.params.out_dtype = types.out;
    bool const int8 = types.kv == XQAJIT_DTYPE_INT8;  // stores the code itself; the unit moves into the scale
    double const kv_unit = int8 ? 1 : vector.unit;
    c.k_scale = static_cast<float>(vector.k_scale * (int8 ? vector.unit : 1));
    c.v_scale = static_cast<float>(vector.v_scale * (int8 ? vector.unit : 1));
    c.q = encoded(vector.q, types.q, vector.unit);
    c.k.pool = std::make_shared<Bytes>(encoded(vector.k, types.kv, kv_unit));
    c.v.pool = std::make_shared<Bytes>(encoded(vector.v, types.kv, kv_unit));
    if (vector.interleaved) interleave(c);
    if (vector.garbage) spoil_unseen(c);
    return c;
}

}  // namespace xqajit::testing
