// The reference of input_kv against what must hold whatever the numbers are.
#include "reference/append.h"

#include <algorithm>

#include "catch.h"
#include "reference/small_case.h"

using namespace xqajit::testing;

namespace {

std::uint32_t new_token_head(ReferenceCase const& c, bool of_v, std::uint32_t kv_head) {
    return c.params.num_q_heads + (of_v ? c.params.num_kv_heads : 0) + kv_head;
}

// A small case as an input_kv launch: qkv has its q and its last tokens' K and V, whose slots are NaN.
ReferenceCase small_append(std::int32_t style, std::uint32_t rotary_dim = 0, std::vector<std::int32_t> lens = {20, 0, 7}) {
    ReferenceCase c = small_case({.dim = 32, .lens = std::move(lens)});
    c.params.input_kv = 1;
    c.params.rope_style = style;
    c.params.rotary_dim = rotary_dim;
    c.params = with_defaults(c.params);
    std::uint32_t const dim = c.params.head_dim, heads = c.params.num_q_heads + 2 * c.params.num_kv_heads;
    c.qkv_stride_head = dim + 8;
    c.qkv_stride_row = heads * c.qkv_stride_head + 16;
    c.qkv.assign(static_cast<std::size_t>(c.batch * c.qkv_stride_row) * 2, 0xFF);
    for (std::uint32_t b = 0; b < c.batch; ++b) {
        auto const move = [&](Bytes& from, std::int64_t offset, std::uint32_t head, bool leaves_nan) {
            for (std::uint32_t d = 0; d < dim; ++d) {
                store_bits(c.qkv.data(), b * c.qkv_stride_row + head * c.qkv_stride_head + d, 2,
                           load_bits(from.data(), offset + d, 2));
                if (leaves_nan) store_bits(from.data(), offset + d, 2, 0xFFFF);
            }
        };
        for (std::uint32_t h = 0; h < c.params.num_q_heads; ++h) move(c.q, b * c.q_stride_row + h * c.q_stride_head, h, false);
        if (c.seq_lens[b] == 0) continue;
        for (std::uint32_t h = 0; h < c.params.num_kv_heads; ++h)
            for (bool const of_v : {false, true})
                move(of_v ? *c.v.pool : *c.k.pool, kv_row(c, of_v, b, 0, c.seq_lens[b] - 1, h), new_token_head(c, of_v, h), true);
    }
    c.q.clear();
    c.q_stride_row = c.q_stride_head = 0;
    if (style == XQAJIT_ROPE_NONE) return c;
    c.max_pos = 32;
    c.cos_sin = rope_angles(c.max_pos, c.params.rotary_dim, 100);
    return c;
}

std::vector<double> bf16_head(Bytes const& rows, std::int64_t offset, std::uint32_t head_dim) {
    std::vector<double> head;
    for (std::uint32_t d = 0; d < head_dim; ++d) head.push_back(decode(XQAJIT_DTYPE_BF16, load_bits(rows.data(), offset + d, 2)));
    return head;
}

std::vector<double> given(ReferenceCase const& c, std::uint32_t request, std::uint32_t head) {
    return bf16_head(c.qkv, request * c.qkv_stride_row + head * c.qkv_stride_head, c.params.head_dim);
}

std::vector<double> q_of(ReferenceCase const& plain, std::uint32_t request, std::uint32_t head) {
    return bf16_head(plain.q, request * plain.q_stride_row + head * plain.q_stride_head, plain.params.head_dim);
}

std::vector<double> stored(ReferenceCase const& plain, bool of_v, std::uint32_t request, std::uint32_t kv_head) {
    std::vector<double> row;
    for (std::uint32_t d = 0; d < plain.params.head_dim; ++d)
        row.push_back(kv_value(plain, of_v, request, plain.seq_lens[request] - 1, kv_head, d));
    return row;
}

double dot(std::vector<double> const& a, std::vector<double> const& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

constexpr std::int32_t kStyles[] = {XQAJIT_ROPE_NEOX, XQAJIT_ROPE_GPTJ};

}  // namespace

TEST_CASE("without rotation, append and attend is what attention to the same cache is", "[reference]") {
    ReferenceCase const c = small_append(XQAJIT_ROPE_NONE);
    ReferenceCase const plain = small_case({.dim = 32});
    CHECK(*appended(c).k.pool == *plain.k.pool);
    CHECK(*appended(c).v.pool == *plain.v.pool);
    CHECK(appended(c).q == plain.q);
    std::vector<BlockResult> const fused = compute_reference(c, all_blocks(c)), apart = compute_reference(plain, all_blocks(plain));
    REQUIRE(fused.size() == apart.size());
    for (std::size_t n = 0; n < fused.size(); ++n) {
        CHECK(fused[n].out == apart[n].out);
        CHECK(fused[n].lse == apart[n].lse);
    }
}

TEST_CASE("a rotation keeps norms and the product of q and the new K, and V is stored as it is", "[reference]") {
    for (std::int32_t const style : kStyles)
        for (std::uint32_t const rotary_dim : {16U, 32U}) {
            ReferenceCase const c = small_append(style, rotary_dim);
            ReferenceCase const plain = appended(c);
            for (std::uint32_t const b : {0U, 2U}) {
                std::vector<double> const q = given(c, b, 0), k = given(c, b, new_token_head(c, false, 0));
                std::vector<double> const q_now = q_of(plain, b, 0), k_now = stored(plain, false, b, 0);
                CHECK(q_now != q);
                CHECK(k_now != k);
                CHECK(dot(q_now, q_now) == Approx(dot(q, q)).epsilon(0.01));
                CHECK(dot(k_now, k_now) == Approx(dot(k, k)).epsilon(0.01));
                CHECK(dot(q_now, k_now) == Approx(dot(q, k)).margin(0.1));
                CHECK(std::equal(q.begin() + rotary_dim, q.end(), q_now.begin() + rotary_dim));
                CHECK(std::equal(k.begin() + rotary_dim, k.end(), k_now.begin() + rotary_dim));
                CHECK(stored(plain, true, b, 1) == given(c, b, new_token_head(c, true, 1)));
            }
        }
}

TEST_CASE("position 0 rotates nothing, and an empty request stores nothing", "[reference]") {
    for (std::int32_t const style : kStyles) {
        ReferenceCase const c = small_append(style, 32, {1, 0, 1});
        ReferenceCase const plain = appended(c);
        CHECK(q_of(plain, 0, 3) == given(c, 0, 3));
        CHECK(stored(plain, false, 2, 1) == given(c, 2, new_token_head(c, false, 1)));
        ReferenceCase const empty = small_append(style, 32, {8, 0});
        ReferenceCase without = empty;
        without.seq_lens[0] = 0;
        CHECK(*appended(without).k.pool == *empty.k.pool);
        CHECK(*appended(without).v.pool == *empty.v.pool);
    }
}

TEST_CASE("the two pairings are one rotation of elements in another order", "[reference]") {
    ReferenceCase const gptj = small_append(XQAJIT_ROPE_GPTJ);
    ReferenceCase neox = small_append(XQAJIT_ROPE_NEOX);
    std::uint32_t const dim = neox.params.head_dim;
    auto const place = [&](std::uint32_t d) { return d % 2 * (dim / 2) + d / 2; };
    for (std::uint32_t d = 0; d < dim; ++d)
        store_bits(neox.qkv.data(), place(d), 2, load_bits(gptj.qkv.data(), d, 2));  // request 0's first head
    std::vector<double> const by_neox = q_of(appended(neox), 0, 0), by_gptj = q_of(appended(gptj), 0, 0);
    for (std::uint32_t d = 0; d < dim; ++d) CHECK(by_neox[place(d)] == by_gptj[d]);
}

TEST_CASE("8-bit codes are rounded to nearest even and saturate", "[reference]") {
    struct Row {
        std::int32_t dtype;
        double given, stored;  // with a scale of 0.5
    };
    for (Row const& row : {Row{XQAJIT_DTYPE_INT8, 1.25, 2}, Row{XQAJIT_DTYPE_INT8, 1.75, 4}, Row{XQAJIT_DTYPE_INT8, 100, 127},
                           Row{XQAJIT_DTYPE_INT8, -100, -128}, Row{XQAJIT_DTYPE_FP8_E4M3, 0.53125, 1},
                           Row{XQAJIT_DTYPE_FP8_E4M3, 0.59375, 1.25}, Row{XQAJIT_DTYPE_FP8_E4M3, -1000, -448}}) {
        ReferenceCase c = small_append(XQAJIT_ROPE_NONE);
        c.params.kv_dtype = row.dtype;
        c.k_scale = 0.5F;
        std::int64_t const at = new_token_head(c, false, 1) * c.qkv_stride_head;
        store_bits(c.qkv.data(), at, 2, encode(XQAJIT_DTYPE_BF16, row.given));
        CAPTURE(row.given);
        CHECK(stored(appended(c), false, 0, 1)[0] == row.stored);
    }
}

TEST_CASE("pools that a launch may have left are told from others", "[reference]") {
    for (std::int32_t const style : {XQAJIT_ROPE_NONE, XQAJIT_ROPE_NEOX, XQAJIT_ROPE_GPTJ}) {
        ReferenceCase const c = small_append(style, style == XQAJIT_ROPE_NONE ? 0 : 16);
        ReferenceCase const plain = appended(c);
        CHECK(pools_difference(c, *plain.k.pool, *plain.v.pool).empty());
        CHECK(pools_difference(c, *c.k.pool, *plain.v.pool).find("K of request 0") == 0);
        Bytes k = *plain.k.pool;
        k[static_cast<std::size_t>(kv_row(c, false, 0, 0, 0, 0)) * 2] ^= 1;
        CHECK(pools_difference(c, k, *plain.v.pool).find(" of K's pool is no new token's, and has changed") != std::string::npos);
        Bytes v = *plain.v.pool;
        v[static_cast<std::size_t>(kv_row(c, true, 2, 0, 6, 1)) * 2] ^= 1;
        CHECK(pools_difference(c, *plain.k.pool, v).find("V of request 2, kv head 1, element 0 ") == 0);
        k = *plain.k.pool;
        k[static_cast<std::size_t>(kv_row(c, false, 2, 0, 6, 1) + 16) * 2] ^= 1;  // past what is rotated
        CHECK(pools_difference(c, k, *plain.v.pool).find("K of request 2, kv head 1, element 16 ") == 0);
    }
}
