// Launches of each kind that the tests of a launch's arguments start from.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "unit/params/shapes.h"

namespace xqajit::test {

// Addresses are only compared and checked, never followed.
template <class T> T* at(std::uintptr_t address) { return reinterpret_cast<T*>(address); }

struct Call {
    XQAParams params;
    RunArgs args;
};

inline Call paged() {
    Call call{decode_shape(), {}};
    RunArgs& args = call.args;
    args.struct_size = sizeof args;
    args.batch = 7;
    args.max_pages = 100;
    args.q = at<void>(0x1000);
    args.out = at<void>(0x2000);
    args.k = at<void>(0x3000);
    args.v = at<void>(0x4000);
    args.page_table = at<std::int32_t>(0x5000);
    args.seq_lens = at<std::int32_t>(0x6000);
    return call;
}

inline Call contiguous() {
    Call call = paged();
    call.params.page_size = 0;
    call.args.max_pages = 0;
    call.args.page_table = nullptr;
    call.args.capacity = 1000;
    return call;
}

inline Call mla() {
    Call call = paged();
    call.params = mla_shape();
    call.args.v = nullptr;
    return call;
}

inline Call fp8() {
    Call call = paged();
    call.params.kv_dtype = call.params.out_dtype = XQAJIT_DTYPE_FP8_E4M3;
    return call;
}

inline Call beam() {
    Call call = paged();
    call.params.beam_width = 4;
    call.args.capacity = 3200;
    call.args.cache_indirection = at<std::int32_t>(0x7000);
    call.args.ctx_lens = at<std::int32_t>(0x8000);
    return call;
}

inline Call tree() {
    Call call = paged();
    call.params.spec_dec = XQAJIT_SPEC_DEC_TREE;
    call.params.q_len = 40;
    call.args.q_len = 33;
    call.args.packed_mask = at<std::uint32_t>(0x9000);
    return call;
}

// input_kv, with RoPE of half a head.
inline Call fused() {
    Call call = paged();
    call.params.input_kv = 1;
    call.params.rope_style = XQAJIT_ROPE_NEOX;
    call.params.rotary_dim = 64;
    call.args.q = nullptr;
    call.args.qkv = at<void>(0x1000);
    call.args.cos_sin = at<float>(0xa000);
    call.args.max_pos = 3200;
    return call;
}

inline Call with(Call call, std::function<void(Call&)> const& change) {
    change(call);
    return call;
}

inline Result<RunArgs> run(Call const& call) {
    auto const params = normalize(call.params);
    REQUIRE(params.ok());
    REQUIRE(validate(*params).ok());
    return normalize_args(*params, call.args);
}

// A call, and the start of the error that it must end in.
struct Bad {
    Call call;
    std::string message;
};

inline void check_all(std::vector<Bad> const& rows) {
    for (Bad const& row : rows) {
        Result<RunArgs> const result = run(row.call);
        CAPTURE(row.message, result.status().message());
        CHECK(result.status().code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(result.status().message().rfind(row.message, 0) == 0);
    }
}

}  // namespace xqajit::test
