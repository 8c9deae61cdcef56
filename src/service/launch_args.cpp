#include "service/launch_args.h"

namespace xqajit {
namespace {

device::KvTensor kv_tensor(void const* base, std::int64_t element_bytes, std::int64_t page, std::int64_t token, std::int64_t head,
                           std::int32_t const* page_table) {
    return {static_cast<device::u8 const*>(base), page * element_bytes, token * element_bytes, head * element_bytes, page_table};
}

}  // namespace

device::KernelArgs launch_args(XQAParams const& params, RunArgs const& args, LaunchPlan const& plan, std::int32_t division) {
    std::int64_t const kv_bytes = dtype_bytes(params.kv_dtype);
    device::KernelArgs out{};
    bool const appends = params.input_kv != 0;
    out.q = appends ? args.qkv : args.q;
    out.out = args.out;
    out.lse = args.lse;
    out.q_stride_row = appends ? args.qkv_stride_row : args.q_stride_row;
    out.q_stride_head = appends ? args.qkv_stride_head : args.q_stride_head;
    out.out_stride_row = args.out_stride_row;
    out.out_stride_head = args.out_stride_head;
    out.k = kv_tensor(args.k, kv_bytes, args.k_stride_page, args.k_stride_token, args.k_stride_head, args.page_table);
    out.v = kv_tensor(args.v, kv_bytes, args.v_stride_page, args.v_stride_token, args.v_stride_head,
                      args.v_page_table != nullptr ? args.v_page_table : args.page_table);
    out.page_table_stride = args.page_table_stride;
    out.max_pages = params.page_size == 0 ? 0 : args.max_pages;
    out.seq_lens = args.seq_lens;
    out.cu_q_len = args.cu_q_len;
    out.packed_mask = args.packed_mask;
    out.mask_stride_row = args.mask_stride_row;
    out.sinks = args.sinks;
    out.cache_indirection = args.cache_indirection;
    out.ctx_lens = args.ctx_lens;
    out.capacity = static_cast<device::i64>(args.capacity);
    out.k_scale_ptr = args.k_scale_ptr;
    out.v_scale_ptr = args.v_scale_ptr;
    out.out_scale_rcp_ptr = args.out_scale_rcp_ptr;
    if (plan.workspace_bytes != 0) {
        auto* const workspace = static_cast<device::u8*>(args.workspace);
        out.counters = reinterpret_cast<device::u32*>(workspace);
        out.partials = reinterpret_cast<float*>(workspace + counter_bytes(args.workspace_size));
    }
    out.qk_scale = params.qk_scale;
    out.softcap = params.softcap;
    out.k_scale = args.k_scale;
    out.v_scale = args.v_scale;
    out.out_scale_rcp = args.out_scale_rcp;
    out.sliding_window = params.sliding_window;
    out.batch = args.batch;
    out.num_kv_heads = params.num_kv_heads;
    out.q_len = args.q_len;
    out.nb_row_blocks = plan.nb_row_blocks;
    out.nb_sub_seq = plan.nb_sub_seq;
    out.nb_extra_parts = plan.nb_extra_parts;
    out.nb_slots = plan.nb_slots;
    out.ring_items = plan.ring_items;
    out.division = static_cast<device::Division>(division);  // plan.cpp asserts that the values agree
    out.tokens_per_sub_seq = plan.tokens_per_sub_seq;
    out.cluster_size = plan.cluster_size;
    out.skipped_tiles = reinterpret_cast<device::u64*>(args.skipped_tiles);
    out.skip_threshold = params.skip_softmax_threshold;
    out.cos_sin = args.cos_sin;
    out.by_num_kv_heads = device::divisor_of(params.num_kv_heads);
    out.by_nb_row_blocks = device::divisor_of(plan.nb_row_blocks);
    return out;
}

}  // namespace xqajit
