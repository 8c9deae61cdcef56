// Small launches for the tests of the reference itself.
#pragma once

#include <cmath>
#include <numeric>
#include <random>

#include "reference/codec.h"
#include "reference/reference.h"

namespace xqajit::testing {

struct SmallShape {
    std::uint32_t kv_heads = 2;
    std::uint32_t group = 3;
    std::uint32_t dim = 16;
    std::uint32_t page = 8;
    std::uint32_t q_len = 1;
    std::int32_t spec_dec = XQAJIT_SPEC_DEC_NONE;
    std::vector<std::int32_t> lens = {20, 0, 7};
    std::uint64_t seed = 1;
};

// bf16, NHD pages in a shuffled table, Gaussian elements, lse on.
inline ReferenceCase small_case(SmallShape const& shape) {
    ReferenceCase c;
    c.params.struct_size = sizeof(xqajit_params);
    c.params.q_dtype = XQAJIT_DTYPE_BF16;
    c.params.num_q_heads = shape.kv_heads * shape.group;
    c.params.num_kv_heads = shape.kv_heads;
    c.params.head_dim = shape.dim;
    c.params.page_size = shape.page;
    c.params.q_len = shape.q_len;
    c.params.spec_dec = shape.spec_dec;
    c.params.lse = 1;
    c.params = with_defaults(c.params);
    c.batch = static_cast<std::uint32_t>(shape.lens.size());
    c.q_len = shape.q_len;
    c.seq_lens = shape.lens;
    std::int32_t const longest = *std::max_element(shape.lens.begin(), shape.lens.end());
    c.max_pages = (static_cast<std::uint32_t>(longest) + shape.page - 1) / shape.page;
    c.page_table_stride = c.max_pages;
    c.page_table.resize(std::size_t{c.batch} * c.max_pages);
    std::iota(c.page_table.begin(), c.page_table.end(), 0);
    std::mt19937_64 rng(shape.seed);
    std::shuffle(c.page_table.begin(), c.page_table.end(), rng);

    std::normal_distribution<double> normal;
    auto const gaussian = [&](std::size_t n) {
        Bytes bytes(n * 2);
        for (std::size_t i = 0; i < n; ++i)
            store_bits(bytes.data(), static_cast<std::int64_t>(i), 2, encode(XQAJIT_DTYPE_BF16, normal(rng)));
        return bytes;
    };
    std::size_t const pool = c.page_table.size() * shape.page * shape.kv_heads * shape.dim;
    c.k.stride_head = shape.dim;
    c.k.stride_token = c.k.stride_head * shape.kv_heads;
    c.k.stride_page = c.k.stride_token * shape.page;
    c.v = c.k;
    c.k.pool = std::make_shared<Bytes>(gaussian(pool));
    c.v.pool = std::make_shared<Bytes>(gaussian(pool));
    c.q = gaussian(static_cast<std::size_t>(c.rows()) * c.params.num_q_heads * shape.dim);
    c.q_stride_head = c.out_stride_head = shape.dim;
    c.q_stride_row = c.out_stride_row = c.q_stride_head * c.params.num_q_heads;
    return c;
}

// A value of K or V as the kernel would read it.
inline double kv_value(ReferenceCase const& c, bool of_v, std::uint32_t request, std::int64_t token, std::uint32_t kv_head,
                       std::uint32_t d) {
    KvView const& view = of_v ? c.v : c.k;
    return decode(c.params.kv_dtype,
                  load_bits(view.pool->data(), kv_row(c, of_v, request, 0, token, kv_head) + d, bytes_of(c.params.kv_dtype)));
}

}  // namespace xqajit::testing
