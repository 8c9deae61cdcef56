#include "reference/append.h"

#include <cmath>

#include "reference/codec.h"

namespace xqajit::testing {
namespace {

// Elements of a head as float64, and how far float32 arithmetic may be from each: 0 where there is none.
struct Row {
    std::vector<double> value;
    std::vector<double> slack;
};

// A head of qkv: those of q, then K's, then V's.
Row head_of(ReferenceCase const& c, std::uint32_t request, std::uint32_t head) {
    Row row{std::vector<double>(c.params.head_dim), std::vector<double>(c.params.head_dim)};
    for (std::uint32_t d = 0; d < c.params.head_dim; ++d) {
        std::int64_t const at = request * c.qkv_stride_row + head * c.qkv_stride_head + d;
        row.value[d] = decode(c.params.q_dtype, load_bits(c.qkv.data(), at, bytes_of(c.params.q_dtype)));
    }
    return row;
}

// By the angles of the request's new token.
void rotate(ReferenceCase const& c, std::uint32_t request, Row& row) {
    if (c.params.rope_style == XQAJIT_ROPE_NONE || c.seq_lens[request] == 0) return;
    std::uint32_t const pairs = c.params.rotary_dim / 2;
    bool const neox = c.params.rope_style == XQAJIT_ROPE_NEOX;
    for (std::uint32_t i = 0; i < pairs; ++i) {
        std::size_t const first = neox ? i : 2 * i, second = neox ? i + pairs : 2 * i + 1;
        std::size_t const angle = (static_cast<std::size_t>(c.seq_lens[request] - 1) * pairs + i) * 2;
        double const cosine = c.cos_sin[angle], sine = c.cos_sin[angle + 1];
        double const x = row.value[first], y = row.value[second];
        row.value[first] = x * cosine - y * sine;
        row.value[second] = y * cosine + x * sine;
        row.slack[first] = 0x1p-22 * (std::fabs(x * cosine) + std::fabs(y * sine));
        row.slack[second] = 0x1p-22 * (std::fabs(y * cosine) + std::fabs(x * sine));
    }
}

// The new K or V, in units of the cache's codes.
Row new_row(ReferenceCase const& c, bool of_v, std::uint32_t request, std::uint32_t kv_head) {
    Row row = head_of(c, request, c.params.num_q_heads + (of_v ? c.params.num_kv_heads : 0) + kv_head);
    if (!of_v) rotate(c, request, row);
    if (bytes_of(c.params.kv_dtype) != 1) return row;
    float const factor = 1.0F / (of_v ? c.v_scale : c.k_scale);
    for (std::size_t d = 0; d < row.value.size(); ++d) {
        bool const exact = row.slack[d] == 0;
        row.value[d] = exact ? static_cast<double>(static_cast<float>(row.value[d]) * factor) : row.value[d] * factor;
        row.slack[d] *= std::fabs(static_cast<double>(factor));
    }
    return row;
}

// Visits every row that the launch writes: f(of_v, request, kv_head, offset of the row's first element).
template <class F> void for_each_new_row(ReferenceCase const& c, F const& f) {
    for (std::uint32_t b = 0; b < c.batch; ++b) {
        if (c.seq_lens[b] == 0) continue;
        for (std::uint32_t h = 0; h < c.params.num_kv_heads; ++h)
            for (bool const of_v : {false, true}) f(of_v, b, h, kv_row(c, of_v, b, 0, c.seq_lens[b] - 1, h));
    }
}

void store(std::int32_t dtype, Bytes& pool, std::int64_t offset, Row const& row) {
    for (std::size_t d = 0; d < row.value.size(); ++d)
        store_bits(pool.data(), offset + static_cast<std::int64_t>(d), bytes_of(dtype), encode(dtype, row.value[d]));
}

bool may_be(std::int32_t dtype, std::uint32_t bits, double value, double slack) {
    if (slack == 0) return bits == encode(dtype, value);
    double const stored = decode(dtype, bits);
    return stored >= decode(dtype, encode(dtype, value - slack)) && stored <= decode(dtype, encode(dtype, value + slack));
}

}  // namespace

std::vector<float> rope_angles(std::int64_t positions, std::uint32_t rotary_dim, double base) {
    std::vector<float> angles;
    angles.reserve(static_cast<std::size_t>(positions) * rotary_dim);
    for (std::int64_t position = 0; position < positions; ++position)
        for (std::uint32_t i = 0; i < rotary_dim / 2; ++i) {
            double const angle = static_cast<double>(position) * std::pow(base, -2.0 * i / rotary_dim);
            angles.push_back(static_cast<float>(std::cos(angle)));
            angles.push_back(static_cast<float>(std::sin(angle)));
        }
    return angles;
}

ReferenceCase appended(ReferenceCase const& c) {
    ReferenceCase plain = c;
    plain.params.input_kv = plain.params.rope_style = 0;
    plain.params.rotary_dim = 0;
    plain.qkv.clear();
    plain.cos_sin.clear();
    plain.qkv_stride_row = plain.qkv_stride_head = plain.max_pos = 0;
    plain.q_stride_head = c.params.head_dim;
    plain.q_stride_row = c.params.num_q_heads * plain.q_stride_head;
    plain.q.resize(static_cast<std::size_t>(c.batch * plain.q_stride_row) * bytes_of(c.params.q_dtype));
    for (std::uint32_t b = 0; b < c.batch; ++b)
        for (std::uint32_t h = 0; h < c.params.num_q_heads; ++h) {
            Row row = head_of(c, b, h);
            rotate(c, b, row);
            store(c.params.q_dtype, plain.q, b * plain.q_stride_row + h * plain.q_stride_head, row);
        }
    plain.k.pool = std::make_shared<Bytes>(*c.k.pool);
    plain.v.pool = c.v.pool == c.k.pool ? plain.k.pool : std::make_shared<Bytes>(*c.v.pool);
    for_each_new_row(c, [&](bool of_v, std::uint32_t b, std::uint32_t h, std::int64_t offset) {
        store(c.params.kv_dtype, of_v ? *plain.v.pool : *plain.k.pool, offset, new_row(c, of_v, b, h));
    });
    return plain;
}

std::string pools_difference(ReferenceCase const& c, Bytes const& k, Bytes const& v) {
    bool const shared = c.v.pool == c.k.pool;
    std::uint32_t const bytes = bytes_of(c.params.kv_dtype);
    Bytes expected[] = {*c.k.pool, shared ? Bytes() : *c.v.pool};
    std::string text;
    for_each_new_row(c, [&](bool of_v, std::uint32_t b, std::uint32_t h, std::int64_t offset) {
        Row const row = new_row(c, of_v, b, h);
        bool const in_v = of_v && !shared;
        for (std::size_t d = 0; d < row.value.size(); ++d) {
            std::int64_t const at = offset + static_cast<std::int64_t>(d);
            std::uint32_t const bits = load_bits((in_v ? v : k).data(), at, bytes);
            store_bits(expected[in_v].data(), at, bytes, bits);
            if (!text.empty() || may_be(c.params.kv_dtype, bits, row.value[d], row.slack[d])) continue;
            text = std::string(of_v ? "V" : "K") + " of request " + std::to_string(b) + ", kv head " + std::to_string(h) +
                   ", element " + std::to_string(d) + " is stored as " + std::to_string(decode(c.params.kv_dtype, bits)) +
                   ", expected " + std::to_string(row.value[d]);
        }
    });
    for (bool const in_v : {false, true}) {
        if (in_v && shared) break;
        Bytes const& pool = in_v ? v : k;
        for (std::size_t n = 0; n < pool.size() && text.empty(); ++n)
            if (pool[n] != expected[in_v][n])
                text = std::string("byte ") + std::to_string(n) + (in_v ? " of V's pool" : " of K's pool") +
                       " is no new token's, and has changed";
    }
    return text;
}

}  // namespace xqajit::testing
