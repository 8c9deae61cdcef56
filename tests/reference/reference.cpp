#include "reference/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "reference/append.h"
#include "reference/codec.h"
#include "reference/fp8_rounding.h"

namespace xqajit::testing {
namespace {

// Query vectors of one (request, beam, kv head) that a task computes together: each K and V row is decoded once for all of them.
constexpr std::uint32_t kVectorsPerTask = 16;

struct Task {
    std::size_t result = 0;
    std::uint32_t beam = 0;
    std::int64_t first = 0;  // of the request's rows x group, rows outermost
};

// Four sums side by side, twice, whatever the processor's width: the order of the additions, and so every bit, is the same everywhere.
using Four [[gnu::vector_size(4 * sizeof(double))]] = double;
using FourBits [[gnu::vector_size(4 * sizeof(double))]] = std::int64_t;
constexpr std::size_t kWidth = 8;

[[gnu::always_inline]] inline void load(Four& four, double const* from) { std::memcpy(&four, from, sizeof four); }

// n: a multiple of kWidth, as in what follows.
[[gnu::always_inline]] inline void dot_body(double const* a, double const* b, std::size_t n, double& sum, double& absolute) {
    Four sums[2] = {};
    Four absolutes[2] = {};
    for (std::size_t d = 0; d < n; d += kWidth)
        for (std::size_t i = 0; i < 2; ++i) {
            Four x;
            Four y;
            load(x, a + d + 4 * i);
            load(y, b + d + 4 * i);
            x *= y;
            sums[i] += x;
            absolutes[i] += reinterpret_cast<Four>(reinterpret_cast<FourBits>(x) & std::numeric_limits<std::int64_t>::max());
        }
    Four const s = sums[0] + sums[1];
    Four const t = absolutes[0] + absolutes[1];
    sum = (s[0] + s[1]) + (s[2] + s[3]);
    absolute = (t[0] + t[1]) + (t[2] + t[3]);
}

[[gnu::always_inline]] inline void add_body(double* sum, double const* row, double weight, std::size_t n) {
    for (std::size_t d = 0; d < n; d += 4) {
        Four x;
        Four y;
        load(x, row + d);
        load(y, sum + d);
        y += weight * x;
        std::memcpy(sum + d, &y, sizeof y);
    }
}

struct Arithmetic {
    void (*dot)(double const* a, double const* b, std::size_t n, double& sum, double& absolute);  // of a * b and |a * b|
    void (*add)(double* sum, double const* row, double weight, std::size_t n);                    // sum += weight * row
};

constexpr Arithmetic kPlain = {
    [](double const* a, double const* b, std::size_t n, double& sum, double& absolute) { dot_body(a, b, n, sum, absolute); },
    [](double* sum, double const* row, double weight, std::size_t n) { add_body(sum, row, weight, n); }};

#if defined(__x86_64__)
[[gnu::target("avx2")]] void dot_avx2(double const* a, double const* b, std::size_t n, double& sum, double& absolute) {
    dot_body(a, b, n, sum, absolute);
}
[[gnu::target("avx2")]] void add_avx2(double* sum, double const* row, double weight, std::size_t n) {
    add_body(sum, row, weight, n);
}

Arithmetic arithmetic() { return __builtin_cpu_supports("avx2") ? Arithmetic{dot_avx2, add_avx2} : kPlain; }
#else
Arithmetic arithmetic() { return kPlain; }
#endif

std::size_t padded(std::size_t dim) { return (dim + kWidth - 1) / kWidth * kWidth; }

void decode_row(float const* table, Bytes const& pool, std::uint32_t element_bytes, std::int64_t offset, std::uint32_t n,
                double* row) {
    for (std::uint32_t d = 0; d < n; ++d) row[d] = table[load_bits(pool.data(), offset + d, element_bytes)];
}

// A token that some vector of a task sees; vector n does where bit n is set.
struct Seen {
    std::int64_t token;
    std::uint32_t by;
};

std::vector<Seen> seen_tokens(ReferenceCase const& c, std::uint32_t request, std::int64_t first, std::uint32_t count) {
    std::vector<std::uint32_t> by(static_cast<std::size_t>(c.seq_lens[request]));
    std::int64_t const group = c.group();
    for (std::int64_t n = 0; n < count;) {
        std::int64_t const row = (first + n) / group;
        std::int64_t const end = std::min<std::int64_t>(count, (row + 1) * group - first);
        std::uint32_t const vectors = (1U << end) - (1U << n);
        for (std::int64_t const token : visible_tokens(c, request, row)) by[static_cast<std::size_t>(token)] |= vectors;
        n = end;
    }
    std::vector<Seen> seen;
    for (std::size_t token = 0; token < by.size(); ++token)
        if (by[token]) seen.push_back({static_cast<std::int64_t>(token), by[token]});
    return seen;
}

void run_task(ReferenceCase const& c, Task const& task, bool rounds, BlockResult& result) {
    static Arithmetic const kArithmetic = arithmetic();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    xqajit_params const& p = c.params;
    std::uint32_t const request = result.block.request;
    std::uint32_t const group = c.group();
    std::int64_t const rest = c.rows_of(request) * group - task.first;
    auto const vectors = static_cast<std::uint32_t>(std::min<std::int64_t>(kVectorsPerTask, rest));
    std::size_t const dim = padded(p.head_dim);
    std::size_t const dim_v = padded(p.head_dim_v);
    std::uint32_t const q_bytes = bytes_of(p.q_dtype);
    std::uint32_t const kv_bytes = bytes_of(p.kv_dtype);
    float const* const kv_table = decode_table(p.kv_dtype);
    auto const row_of = [&](std::uint32_t n) { return (task.first + n) / group; };
    auto const head_of = [&](std::uint32_t n) { return static_cast<std::uint32_t>((task.first + n) % group); };

    std::vector<double> q(dim * vectors);
    for (std::uint32_t n = 0; n < vectors; ++n) {
        std::int64_t const q_row = (c.first_row(request) + row_of(n)) * p.beam_width + task.beam;
        std::int64_t const q_head = result.block.kv_head * group + head_of(n);
        decode_row(decode_table(p.q_dtype), c.q, q_bytes, q_row * c.q_stride_row + q_head * c.q_stride_head, p.head_dim,
                   q.data() + n * dim);
        if (rounds) round_query(q.data() + n * dim, p.head_dim);
    }

    std::vector<Seen> const seen = seen_tokens(c, request, task.first, vectors);
    std::vector<double> scores(seen.size() * kVectorsPerTask);
    std::vector<double> row(std::max(dim, dim_v));
    double const scale = static_cast<double>(p.qk_scale) * c.k_scale;
    double maximum[kVectorsPerTask];
    std::fill_n(maximum, kVectorsPerTask, -kInfinity);
    double magnitude[kVectorsPerTask] = {};
    std::uint32_t seeing = 0;
    for (std::size_t t = 0; t < seen.size(); ++t) {
        std::int64_t const offset = kv_row(c, false, request, task.beam, seen[t].token, result.block.kv_head);
        decode_row(kv_table, *c.k.pool, kv_bytes, offset, p.head_dim, row.data());
        seeing |= seen[t].by;
        for (std::uint32_t n = 0; n < vectors; ++n) {
            if ((seen[t].by >> n & 1) == 0) continue;
            double score;
            double absolute;
            kArithmetic.dot(row.data(), q.data() + n * dim, dim, score, absolute);
            magnitude[n] = std::max(magnitude[n], absolute * std::fabs(scale));
            score *= scale;
            if (p.softcap != 0) score = p.softcap * std::tanh(score / p.softcap);
            scores[t * kVectorsPerTask + n] = score;
            maximum[n] = std::max(maximum[n], score);
        }
    }

    double denominator[kVectorsPerTask] = {};
    double largest[kVectorsPerTask];
    std::copy(std::begin(maximum), std::end(maximum), largest);  // without the sinks
    for (std::uint32_t n = 0; n < vectors && p.sinks; ++n) {
        double const sink = c.sinks[result.block.kv_head * group + head_of(n)];
        maximum[n] = std::max(maximum[n], sink);
        denominator[n] = std::exp(sink - maximum[n]);
    }
    std::vector<double> out(dim_v * vectors);
    OtherRounding other[kVectorsPerTask];
    std::fill(row.begin(), row.end(), 0);  // what K left past V's end
    KvView const& v = p.mla ? c.k : c.v;
    for (std::size_t t = 0; t < seen.size(); ++t) {
        std::int64_t const offset = kv_row(c, !p.mla, request, task.beam, seen[t].token, result.block.kv_head);
        decode_row(kv_table, *v.pool, kv_bytes, offset, p.head_dim_v, row.data());
        for (std::uint32_t n = 0; n < vectors; ++n) {
            if ((seen[t].by >> n & 1) == 0) continue;
            double const score = scores[t * kVectorsPerTask + n];
            double weight = std::exp(score - maximum[n]);
            denominator[n] += weight;
            if (rounds) {
                double const of_largest = std::exp(score - largest[n]), beside_sink = std::exp(largest[n] - maximum[n]);
                weight = round_weight(of_largest) * beside_sink;
                other[n].consider(to_other_rounding(of_largest, magnitude[n] * kFp8ScoreError) * beside_sink, seen[t].token, row);
            }
            if (weight != 0) kArithmetic.add(out.data() + n * dim_v, row.data(), weight, dim_v);
        }
    }

    for (std::uint32_t n = 0; n < vectors; ++n) {
        std::size_t const index = (static_cast<std::size_t>(row_of(n)) * p.beam_width + task.beam) * group + head_of(n);
        // Nothing visible: 0, and the sink alone as lse (ln 1 + sink), or -inf without one.
        bool const sees = (seeing >> n & 1) != 0;
        std::vector<double>& to = rounds ? result.fp8_out : result.out;
        for (std::uint32_t d = 0; d < p.head_dim_v; ++d)
            to[index * p.head_dim_v + d] = sees ? c.v_scale * out[n * dim_v + d] / denominator[n] : 0;
        if (rounds) std::copy_n(to.begin() + index * p.head_dim_v, p.head_dim_v, result.fp8_other.begin() + index * p.head_dim_v);
        if (other[n].moves != 0) {
            std::int64_t const offset = kv_row(c, !p.mla, request, task.beam, other[n].token, result.block.kv_head);
            decode_row(kv_table, *v.pool, kv_bytes, offset, p.head_dim_v, row.data());
            for (std::uint32_t d = 0; d < p.head_dim_v; ++d)
                result.fp8_other[index * p.head_dim_v + d] += c.v_scale * other[n].added * row[d] / denominator[n];
        }
        if (!rounds) result.magnitude[index] = magnitude[n];
        (rounds ? result.fp8_lse : result.lse)[index] = denominator[n] > 0 ? maximum[n] + std::log(denominator[n]) : -kInfinity;
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
    if (params.rotary_dim == 0 && params.rope_style != XQAJIT_ROPE_NONE) params.rotary_dim = params.head_dim;
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
    if (c.params.input_kv) return compute_reference(appended(c), blocks, threads);
    std::vector<BlockResult> results(blocks.size());
    std::vector<Task> tasks;
    for (std::size_t n = 0; n < blocks.size(); ++n) {
        std::int64_t const rows = c.rows_of(blocks[n].request);
        std::size_t const vectors = static_cast<std::size_t>(rows) * c.params.beam_width * c.group();
        results[n].block = blocks[n];
        results[n].out.resize(vectors * c.params.head_dim_v);
        results[n].lse.resize(vectors);
        results[n].magnitude.resize(vectors);
        if (c.params.numeric == XQAJIT_NUMERIC_FP8) {
            results[n].fp8_out.resize(results[n].out.size());
            results[n].fp8_lse.resize(vectors);
            results[n].fp8_other.resize(results[n].out.size());
        }
        for (std::uint32_t w = 0; w < c.params.beam_width; ++w)
            for (std::int64_t first = 0; first < rows * c.group(); first += kVectorsPerTask) tasks.push_back({n, w, first});
    }
    if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
    threads = static_cast<unsigned>(std::min<std::size_t>(threads, tasks.size()));
    std::atomic<std::size_t> next{0};
    auto const work = [&] {
        for (std::size_t n = next++; n < tasks.size(); n = next++) {
            BlockResult& result = results[tasks[n].result];
            run_task(c, tasks[n], false, result);
            if (c.params.numeric == XQAJIT_NUMERIC_FP8) run_task(c, tasks[n], true, result);
        }
    };
    std::vector<std::thread> pool;
    for (unsigned n = 1; n < threads; ++n) pool.emplace_back(work);
    work();
    for (std::thread& thread : pool) thread.join();
    return results;
}

}  // namespace xqajit::testing
