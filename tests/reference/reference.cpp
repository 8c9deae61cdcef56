#include "reference/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "reference/codec.h"

namespace xqajit::testing {
namespace {

// Heads of one group that a task computes together: each K row is decoded once for all of them.
constexpr std::uint32_t kHeadsPerTask = 8;

struct Task {
    std::size_t result = 0;
    std::int64_t row = 0;  // within the request
    std::uint32_t beam = 0;
    std::uint32_t first_head = 0;  // within the group
};

void decode_row(float const* table, Bytes const& pool, std::uint32_t element_bytes, std::int64_t offset, std::uint32_t n,
                double* row) {
    for (std::uint32_t d = 0; d < n; ++d) row[d] = table[load_bits(pool.data(), offset + d, element_bytes)];
}

void run_task(ReferenceCase const& c, Task const& task, BlockResult& result) {
    xqajit_params const& p = c.params;
    std::uint32_t const group = c.group();
    std::uint32_t const heads = std::min(kHeadsPerTask, group - task.first_head);
    std::uint32_t const dim = p.head_dim;
    std::uint32_t const dim_v = p.head_dim_v;
    std::uint32_t const q_bytes = bytes_of(p.q_dtype);
    std::uint32_t const kv_bytes = bytes_of(p.kv_dtype);
    float const* const kv_table = decode_table(p.kv_dtype);
    std::uint32_t const request = result.block.request;
    std::int64_t const q_row = (c.first_row(request) + task.row) * p.beam_width + task.beam;
    std::uint32_t const q_head = result.block.kv_head * group + task.first_head;

    std::vector<double> q(std::size_t{dim} * kHeadsPerTask);  // [dim][head]: the inner loop runs over heads
    for (std::uint32_t h = 0; h < heads; ++h) {
        std::int64_t const base = q_row * c.q_stride_row + (q_head + h) * c.q_stride_head;
        for (std::uint32_t d = 0; d < dim; ++d)
            q[d * kHeadsPerTask + h] = decode(p.q_dtype, load_bits(c.q.data(), base + d, q_bytes));
    }

    std::vector<std::int64_t> const tokens = visible_tokens(c, request, task.row);
    std::vector<double> scores(tokens.size() * kHeadsPerTask);
    std::vector<double> row(std::max(dim, dim_v));
    double const scale = static_cast<double>(p.qk_scale) * c.k_scale;
    double maximum[kHeadsPerTask];
    std::fill_n(maximum, kHeadsPerTask, -std::numeric_limits<double>::infinity());
    double magnitude[kHeadsPerTask] = {};
    for (std::size_t n = 0; n < tokens.size(); ++n) {
        decode_row(kv_table, *c.k.pool, kv_bytes, kv_row(c, false, request, task.beam, tokens[n], result.block.kv_head), dim,
                   row.data());
        double sum[kHeadsPerTask] = {};
        double absolute[kHeadsPerTask] = {};
        for (std::uint32_t d = 0; d < dim; ++d)
            for (std::uint32_t h = 0; h < kHeadsPerTask; ++h) {
                double const term = row[d] * q[d * kHeadsPerTask + h];
                sum[h] += term;
                absolute[h] += std::fabs(term);
            }
        for (std::uint32_t h = 0; h < heads; ++h) {
            magnitude[h] = std::max(magnitude[h], absolute[h] * std::fabs(scale));
            double score = sum[h] * scale;
            if (p.softcap != 0) score = p.softcap * std::tanh(score / p.softcap);
            scores[n * kHeadsPerTask + h] = score;
            maximum[h] = std::max(maximum[h], score);
        }
    }

    double denominator[kHeadsPerTask] = {};
    for (std::uint32_t h = 0; h < heads; ++h) {
        if (!p.sinks) continue;
        double const sink = c.sinks[q_head + h];
        maximum[h] = std::max(maximum[h], sink);
        denominator[h] = std::exp(sink - maximum[h]);
    }
    std::vector<double> out(std::size_t{dim_v} * kHeadsPerTask);
    KvView const& v = p.mla ? c.k : c.v;
    for (std::size_t n = 0; n < tokens.size(); ++n) {
        std::int64_t const offset = kv_row(c, !p.mla, request, task.beam, tokens[n], result.block.kv_head);
        decode_row(kv_table, *v.pool, kv_bytes, offset, dim_v, row.data());
        for (std::uint32_t h = 0; h < heads; ++h) {
            double const weight = std::exp(scores[n * kHeadsPerTask + h] - maximum[h]);
            denominator[h] += weight;
            if (weight == 0) continue;
            double* const sum = out.data() + std::size_t{h} * dim_v;
            for (std::uint32_t d = 0; d < dim_v; ++d) sum[d] += weight * row[d];
        }
    }

    for (std::uint32_t h = 0; h < heads; ++h) {
        std::size_t const index = (static_cast<std::size_t>(task.row) * p.beam_width + task.beam) * group + task.first_head + h;
        // Nothing visible: 0, and the sink alone as lse (ln 1 + sink), or -inf without one.
        bool const seen = !tokens.empty();
        for (std::uint32_t d = 0; d < dim_v; ++d)
            result.out[index * dim_v + d] = seen ? c.v_scale * out[std::size_t{h} * dim_v + d] / denominator[h] : 0;
        result.magnitude[index] = magnitude[h];
        result.lse[index] = denominator[h] > 0 ? maximum[h] + std::log(denominator[h]) : -std::numeric_limits<double>::infinity();
    }
}

}  // namespace

std::int64_t ReferenceCase::first_row(std::uint32_t request) const {
    return cu_q_len.empty() ? static_cast<std::int64_t>(request) * q_len : cu_q_len[request];
}

xqajit_params with_defaults(xqajit_params params) {
    if (params.kv_dtype == XQAJIT_DTYPE_DEFAULT) params.kv_dtype = params.q_dtype;
    if (params.out_dtype == XQAJIT_DTYPE_DEFAULT) params.out_dtype = params.q_dtype;
    if (params.head_dim_v == 0) params.head_dim_v = params.mla ? 512 : params.head_dim;
    if (params.beam_width == 0) params.beam_width = 1;
    if (params.q_len == 0) params.q_len = 1;
    if (params.qk_scale == 0) params.qk_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(params.head_dim)));
    return params;
}

std::vector<std::int64_t> visible_tokens(ReferenceCase const& c, std::uint32_t request, std::int64_t i) {
    std::int64_t const len = c.seq_lens[request];
    std::int64_t const q_len = c.rows_of(request);
    std::int64_t const prefix = len - q_len;  // tokens before the draft; negative where the draft is longer than the cache
    std::int64_t const window = c.params.sliding_window;
    std::int64_t const first = window ? std::max<std::int64_t>(0, prefix + i - window + 1) : 0;
    std::vector<std::int64_t> tokens;
    for (std::int64_t t = first; t < prefix; ++t) tokens.push_back(t);
    for (std::int64_t j = 0; j < q_len; ++j) {
        std::int64_t const t = prefix + j;
        if (t < first) continue;
        bool seen = j <= i;
        if (c.params.spec_dec == XQAJIT_SPEC_DEC_TREE) {
            std::uint32_t const word =
                c.packed_mask[static_cast<std::size_t>((c.first_row(request) + i) * c.mask_stride_row + j / 32)];
            seen = j == i || (word >> (j % 32) & 1) != 0;
        }
        if (seen) tokens.push_back(t);
    }
    return tokens;
}

std::int64_t kv_row(ReferenceCase const& c, bool of_v, std::uint32_t request, std::uint32_t w, std::int64_t token,
                    std::uint32_t kv_head) {
    KvView const& view = of_v ? c.v : c.k;
    std::uint32_t const beam = c.params.beam_width;
    std::uint32_t source = w;
    if (beam > 1) {
        std::int64_t const row = static_cast<std::int64_t>(request) * beam + w;
        source = token < c.ctx_lens[request]
                     ? 0
                     : static_cast<std::uint32_t>(c.cache_indirection[static_cast<std::size_t>(row * c.capacity + token)]);
    }
    std::int64_t const sequence = static_cast<std::int64_t>(request) * beam + source;
    std::int64_t page = sequence;
    std::int64_t slot = token;
    if (c.params.page_size) {
        std::vector<std::int32_t> const& table = of_v && !c.v_page_table.empty() ? c.v_page_table : c.page_table;
        page = table[static_cast<std::size_t>(sequence * c.page_table_stride + token / c.params.page_size)];
        slot = token % c.params.page_size;
    }
    return view.offset + page * view.stride_page + slot * view.stride_token + kv_head * view.stride_head;
}

std::vector<Block> all_blocks(ReferenceCase const& c) {
    std::vector<Block> blocks;
    for (std::uint32_t b = 0; b < c.batch; ++b)
        for (std::uint32_t h = 0; h < c.params.num_kv_heads; ++h) blocks.push_back({b, h});
    return blocks;
}

std::vector<BlockResult> compute_reference(ReferenceCase const& c, std::span<Block const> blocks, unsigned threads) {
    std::vector<BlockResult> results(blocks.size());
    std::vector<Task> tasks;
    for (std::size_t n = 0; n < blocks.size(); ++n) {
        std::int64_t const rows = c.rows_of(blocks[n].request);
        std::size_t const vectors = static_cast<std::size_t>(rows) * c.params.beam_width * c.group();
        results[n] = {blocks[n], std::vector<double>(vectors * c.params.head_dim_v), std::vector<double>(vectors),
                      std::vector<double>(vectors)};
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::uint32_t w = 0; w < c.params.beam_width; ++w)
                for (std::uint32_t h = 0; h < c.group(); h += kHeadsPerTask) tasks.push_back({n, row, w, h});
    }
    if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
    threads = static_cast<unsigned>(std::min<std::size_t>(threads, tasks.size()));
    std::atomic<std::size_t> next{0};
    auto const work = [&] {
        for (std::size_t n = next++; n < tasks.size(); n = next++) run_task(c, tasks[n], results[tasks[n].result]);
    };
    std::vector<std::thread> pool;
    for (unsigned n = 1; n < threads; ++n) pool.emplace_back(work);
    work();
    for (std::thread& thread : pool) thread.join();
    return results;
}

}  // namespace xqajit::testing
