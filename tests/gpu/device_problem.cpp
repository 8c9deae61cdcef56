#include "gpu/device_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/draw.h"
#include "reference/append.h"
#include "reference/codec.h"

namespace xqajit::testing {
namespace {

// Same result whatever the order of page ids.
std::vector<std::int32_t> placed(std::vector<std::int32_t> table, Placement const& placement) {
    if (!placement.page_of.empty())
        for (std::int32_t& page : table)
            if (page >= 0 && static_cast<std::size_t>(page) < placement.page_of.size())
                page = placement.page_of[static_cast<std::size_t>(page)];
    return table;
}

// Host page p lies at p, p + pages, p + 2 * pages and so on, in a device pool that holds the host's `repeats` times.
struct OwnPages {
    std::vector<std::int32_t> table;
    std::uint64_t repeats = 1;
};
OwnPages own_pages(ReferenceCase const& c) {
    OwnPages own{c.page_table, 1};
    auto const pages = static_cast<std::int64_t>(c.k.pool->size()) / (c.k.stride_page * std::int64_t{bytes_of(c.params.kv_dtype)});
    auto const for_each_used = [&](auto const& f) {
        for (std::size_t row = 0; row < std::size_t{c.batch} * c.params.beam_width; ++row) {
            std::int64_t const len = c.seq_lens[row / c.params.beam_width];
            for (std::int64_t n = 0; n * c.params.page_size < len; ++n)
                f(own.table[row * static_cast<std::size_t>(c.page_table_stride) + static_cast<std::size_t>(n)]);
        }
    };
    std::vector<std::int64_t> uses(static_cast<std::size_t>(pages));
    for_each_used([&](std::int32_t page) { ++uses[static_cast<std::size_t>(page)]; });
    std::int64_t const repeats = std::max<std::int64_t>(1, *std::max_element(uses.begin(), uses.end()));
    own.repeats = static_cast<std::uint64_t>(repeats);
    // A page's first use lies in any of the repeats, so that neighbours in the table are far apart.
    Random random(1);
    for (std::int64_t& next : uses) next = random.between(0, repeats - 1);
    for_each_used([&](std::int32_t& page) {
        std::int64_t const repeat = uses[static_cast<std::size_t>(page)]++ % repeats;
        page = static_cast<std::int32_t>(page + repeat * pages);
    });
    return own;
}

std::int64_t vector_count(ReferenceCase const& c) { return c.rows() * c.params.beam_width; }

}  // namespace

bool Outputs::operator==(Outputs const& other) const {
    return out == other.out && lse.size() == other.lse.size() &&
           (lse.empty() || std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0);
}

template <class T> Result<T*> DeviceProblem::add(char const* name, std::vector<T> const& values) {
    Result<GuardedBuffer> buffer = GuardedBuffer::from(values);
    if (!buffer.ok()) return buffer.status();
    buffers_.push_back({name, std::move(*buffer)});
    return buffers_.back().buffer.data<T>();
}

Result<std::uint8_t*> DeviceProblem::add_pool(char const* name, ReferenceCase const& c, KvView const& view,
                                              Placement const& placement, std::uint64_t repeats) {
    if (repeats > 1) {
        std::uint64_t const bytes = view.pool->size();
        Result<GuardedBuffer> buffer = GuardedBuffer::create(bytes * repeats);
        if (!buffer.ok()) return buffer.status();
        for (std::uint64_t n = 0; n < repeats; ++n)
            XQAJIT_RETURN_IF_ERROR(buffer->upload(std::as_bytes(std::span(*view.pool)), n * bytes));
        buffers_.push_back({name, std::move(*buffer)});
        return buffers_.back().buffer.data<std::uint8_t>();
    }
    if (placement.stride_page == 0) return add(name, *view.pool);
    std::uint64_t const element = bytes_of(c.params.kv_dtype);
    std::uint64_t const host_stride = static_cast<std::uint64_t>(view.stride_page) * element;
    std::uint64_t const device_stride = static_cast<std::uint64_t>(placement.stride_page) * element;
    std::uint64_t const pages = view.pool->size() / host_stride;
    auto const device_page = [&](std::uint64_t page) {
        return placement.page_of.empty() ? page : static_cast<std::uint64_t>(placement.page_of[page]);
    };
    std::uint64_t last = 0;
    for (std::uint64_t page = 0; page < pages; ++page) last = std::max(last, device_page(page));
    Result<GuardedBuffer> buffer = GuardedBuffer::create(last * device_stride + host_stride);
    if (!buffer.ok()) return buffer.status();
    for (std::uint64_t page = 0; page < pages; ++page)
        XQAJIT_RETURN_IF_ERROR(buffer->upload(std::as_bytes(std::span(*view.pool).subspan(page * host_stride, host_stride)),
                                              device_page(page) * device_stride));
    buffers_.push_back({name, std::move(*buffer)});
    return buffers_.back().buffer.data<std::uint8_t>();
}

GuardedBuffer const* DeviceProblem::find(char const* name) const {
    for (Named const& named : buffers_)
        if (std::strcmp(named.name, name) == 0) return &named.buffer;
    return nullptr;
}

Result<DeviceProblem> DeviceProblem::upload(Gpu const& gpu, ReferenceCase const& c, LaunchOptions const& options) {
    DeviceProblem p(gpu);
    p.params = c.params;
    p.out_bytes_ = bytes_of(c.params.out_dtype);
    p.vectors_ = vector_count(c);
    OwnPages const own = options.own_pages && c.params.page_size ? own_pages(c) : OwnPages{c.page_table, 1};
    Status failed;
    auto const put = [&](char const* name, auto const& values) {
        auto result = p.add(name, values);
        if (!result.ok() && failed.ok()) failed = result.status();
        return result.ok() ? *result : nullptr;
    };
    auto const put_pool = [&](char const* name, KvView const& view) -> std::uint8_t* {
        Result<std::uint8_t*> result = p.add_pool(name, c, view, options.placement, own.repeats);
        if (!result.ok() && failed.ok()) failed = result.status();
        return result.ok() ? *result : nullptr;
    };
    auto const at = [&](std::uint8_t* pool, KvView const& view) -> void const* {
        return pool == nullptr ? nullptr : pool + view.offset * bytes_of(c.params.kv_dtype);
    };
    auto const page_stride = [&](KvView const& view) {
        return options.placement.stride_page ? options.placement.stride_page : view.stride_page;
    };

    xqajit_run_args& a = p.args;
    a = XQAJIT_RUN_ARGS_INIT;
    a.batch = c.batch;
    a.q_len = c.q_len;
    a.max_pages = c.max_pages;
    a.max_len = options.max_len;
    a.capacity = static_cast<std::uint64_t>(c.capacity);
    a.q = put("q", c.q);
    a.q_stride_row = c.q_stride_row;
    a.q_stride_head = c.q_stride_head;
    a.qkv = put("qkv", c.qkv);
    a.qkv_stride_row = c.qkv_stride_row;
    a.qkv_stride_head = c.qkv_stride_head;
    a.cos_sin = put("cos_sin", c.cos_sin);
    a.max_pos = static_cast<std::uint64_t>(c.max_pos);
    a.out_stride_row = c.out_stride_row;
    a.out_stride_head = c.out_stride_head;
    std::uint8_t* const k_pool = put_pool("k", c.k);
    a.k = at(k_pool, c.k);
    a.k_stride_page = page_stride(c.k);
    a.k_stride_token = c.k.stride_token;
    a.k_stride_head = c.k.stride_head;
    if (!c.params.mla) {
        a.v = at(c.v.pool == c.k.pool ? k_pool : put_pool("v", c.v), c.v);
        a.v_stride_page = page_stride(c.v);
        a.v_stride_token = c.v.stride_token;
        a.v_stride_head = c.v.stride_head;
    }
    a.page_table = put("page_table", placed(own.table, options.placement));
    a.v_page_table = put("v_page_table", placed(c.v_page_table, options.placement));
    a.page_table_stride = c.page_table_stride;
    a.seq_lens = put("seq_lens", c.seq_lens);
    a.cu_q_len = put("cu_q_len", c.cu_q_len);
    a.packed_mask = put("packed_mask", c.packed_mask);
    a.mask_stride_row = c.mask_stride_row;
    a.sinks = put("sinks", c.sinks);
    a.cache_indirection = put("cache_indirection", c.cache_indirection);
    a.ctx_lens = put("ctx_lens", c.ctx_lens);
    bool const kv_scales = bytes_of(c.params.kv_dtype) == 1;
    bool const out_scale = c.params.out_dtype == XQAJIT_DTYPE_FP8_E4M3;
    if (options.device_scales) {
        if (kv_scales) {
            a.k_scale_ptr = put("k_scale", std::vector<float>{c.k_scale});
            a.v_scale_ptr = put("v_scale", std::vector<float>{c.v_scale});
            a.k_scale = a.v_scale = 77;
        }
        if (out_scale) {
            a.out_scale_rcp_ptr = put("out_scale_rcp", std::vector<float>{c.out_scale_rcp});
            a.out_scale_rcp = 77;
        }
    } else {
        if (kv_scales) {
            a.k_scale = c.k_scale;
            a.v_scale = c.v_scale;
        }
        if (out_scale) a.out_scale_rcp = c.out_scale_rcp;
    }
    if (!failed.ok()) return failed;

    std::uint64_t const held =
        c.params.page_size ? std::uint64_t{c.max_pages} * c.params.page_size : static_cast<std::uint64_t>(c.capacity);
    p.max_len = options.max_len ? options.max_len : held;
    std::int64_t const out_elements = p.vectors_ == 0 ? 0
                                                      : (p.vectors_ - 1) * c.out_stride_row +
                                                            (c.params.num_q_heads - 1) * c.out_stride_head + c.params.head_dim_v;
    a.out = put("out", Bytes(static_cast<std::size_t>(out_elements) * p.out_bytes_, std::uint8_t{0xFF}));
    if (c.params.lse) a.lse = put("lse", std::vector<float>(static_cast<std::size_t>(p.vectors_) * c.params.num_q_heads));
    if (c.params.skip_softmax) a.skipped_tiles = put("skipped_tiles", std::vector<std::uint64_t>(2));
    if (!failed.ok()) return failed;
    XQAJIT_RETURN_IF_ERROR(p.poison_outputs());

    std::uint64_t bytes = 0;
    XQAJIT_RETURN_IF_ERROR(api(xqajit_workspace_size(gpu.service(), &p.params, c.batch, p.max_len, &bytes)));
    Result<GuardedBuffer> workspace = GuardedBuffer::create(bytes);
    if (!workspace.ok()) return workspace.status();
    p.workspace_ = std::make_unique<GuardedBuffer>(std::move(*workspace));
    XQAJIT_RETURN_IF_ERROR(p.workspace_->fill(options.workspace_fill));
    a.workspace = p.workspace_->data();
    a.workspace_size = bytes;
    return p;
}

DeviceProblem::~DeviceProblem() {
    // One that was never initialised is unknown to the service: that is no failure.
    if (workspace_ != nullptr && workspace_->data() != nullptr) xqajit_workspace_release(gpu_->service(), workspace_->data());
}

Status DeviceProblem::prepare(Gpu const& gpu) {
    XQAJIT_RETURN_IF_ERROR(api(xqajit_prepare(gpu.service(), &params)));
    XQAJIT_RETURN_IF_ERROR(gpu.synchronize());
    if (args.workspace != nullptr)
        XQAJIT_RETURN_IF_ERROR(api(xqajit_workspace_init(gpu.service(), args.workspace, args.workspace_size, gpu.stream())));
    return gpu.synchronize();
}

Status DeviceProblem::poison_outputs() {
    for (Named& named : buffers_)
        if (std::strcmp(named.name, "out") == 0 || std::strcmp(named.name, "lse") == 0)
            XQAJIT_RETURN_IF_ERROR(named.buffer.fill(0xFF));
    return {};
}

Result<DeviceProblem::SkippedTiles> DeviceProblem::take_skipped_tiles() {
    SkippedTiles tiles;
    for (Named& named : buffers_) {
        if (std::strcmp(named.name, "skipped_tiles") != 0) continue;
        XQAJIT_RETURN_IF_ERROR(named.buffer.download(std::as_writable_bytes(std::span(&tiles, 1))));
        XQAJIT_RETURN_IF_ERROR(named.buffer.fill(0));
    }
    return tiles;
}

Status DeviceProblem::launch(Gpu const& gpu) const { return api(xqajit_run(gpu.service(), &params, &args, gpu.stream())); }

Status DeviceProblem::run(Gpu const& gpu) {
    XQAJIT_RETURN_IF_ERROR(poison_outputs());
    XQAJIT_RETURN_IF_ERROR(gpu.synchronize());
    XQAJIT_RETURN_IF_ERROR(launch(gpu));
    return gpu.synchronize();
}

Result<Outputs> DeviceProblem::download() const {
    Outputs outputs;
    GuardedBuffer const* const out = find("out");
    outputs.out.resize(out->bytes());
    XQAJIT_RETURN_IF_ERROR(out->download(std::as_writable_bytes(std::span(outputs.out))));
    if (GuardedBuffer const* const lse = find("lse")) {
        outputs.lse.resize(lse->bytes() / sizeof(float));
        XQAJIT_RETURN_IF_ERROR(lse->download(std::as_writable_bytes(std::span(outputs.lse))));
    }
    return outputs;
}

Result<ReferenceCase> DeviceProblem::as_stored(ReferenceCase const& c) const {
    ReferenceCase plain = appended(c);
    auto const read = [&](char const* name, KvView& view) -> Status {
        return find(name)->download(std::as_writable_bytes(std::span(*view.pool)));
    };
    XQAJIT_RETURN_IF_ERROR(read("k", plain.k));
    if (plain.v.pool != plain.k.pool) XQAJIT_RETURN_IF_ERROR(read("v", plain.v));
    std::string const text = pools_difference(c, *plain.k.pool, *plain.v.pool);
    if (!text.empty()) return Status(XQAJIT_INTERNAL, text);
    return plain;
}

Status DeviceProblem::check_memory(Outputs const& outputs) const {
    for (Named const& named : buffers_) XQAJIT_RETURN_IF_ERROR(named.buffer.check_zones(named.name));
    XQAJIT_RETURN_IF_ERROR(workspace_->check_zones("workspace"));
    std::vector<bool> covered(outputs.out.size() / out_bytes_);
    for (std::int64_t row = 0; row < vectors_; ++row)
        for (std::uint32_t head = 0; head < params.num_q_heads; ++head)
            for (std::uint32_t d = 0; d < params.head_dim_v; ++d) {
                std::int64_t const index = row * args.out_stride_row + head * args.out_stride_head + d;
                covered[static_cast<std::size_t>(index)] = true;
                if (std::isnan(decode_table(params.out_dtype)[load_bits(outputs.out.data(), index, out_bytes_)]))
                    return {XQAJIT_INTERNAL,
                            fmt::format("out: row {}, head {}, element {} is NaN or was not written", row, head, d)};
            }
    for (std::size_t n = 0; n < covered.size(); ++n)
        if (!covered[n] &&
            load_bits(outputs.out.data(), static_cast<std::int64_t>(n), out_bytes_) != (out_bytes_ == 1 ? 0xFFU : 0xFFFFU))
            return {XQAJIT_INTERNAL, fmt::format("out: element {} between the rows was written", n)};
    for (std::size_t n = 0; n < outputs.lse.size(); ++n)
        if (std::isnan(outputs.lse[n])) return {XQAJIT_INTERNAL, fmt::format("lse: entry {} is NaN or was not written", n)};
    return {};
}

Status DeviceProblem::set_seq_lens(std::vector<std::int32_t> const& values) {
    return find("seq_lens")->upload(std::as_bytes(std::span(values)));
}

Status DeviceProblem::set_page_table(std::vector<std::int32_t> const& values) {
    return find("page_table")->upload(std::as_bytes(std::span(values)));
}

}  // namespace xqajit::testing
