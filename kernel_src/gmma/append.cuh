// input_kv: the new token's K and V go from qkv to the cache, by the warp that copies tiles, and come back with their tile: the token is
// attended as it is stored. README.md has the order.
#pragma once

#include "common/rope.cuh"
#include "gmma/ring.cuh"

namespace xqajit::device {

constexpr u32 kNewTokenLanes = Config::kHeadDim / 8;  // each has eight elements of K and of V

// This lane's part of the new K and V of (request, kv head). Loaded as soon as the work is known, stored before the last tile is copied.
struct NewToken {
    RopeVec k;
    Vec16 v;
    float k_scale, v_scale;  // of 8-bit KV
};

// Whether this block has the request's last token: one of each row block's. The row blocks of a KV head all store it, the same bits by the
// same code, and each reads what it has stored itself.
inline bool has_new_token(Work const& work, Tiles tiles) {
    return tiles.begin < tiles.end && work.share.end == static_cast<u32>(work.len);
}

// args.q: [batch, num_q_heads + 2 num_kv_heads, head_dim]: all heads of Q, then of K, then of V.
inline NewToken load_new_token(KernelArgs const& args, Work const& work, u32 lane) {
    NewToken token;
    if (lane < kNewTokenLanes) {
        i64 const k_head = static_cast<i64>(args.num_kv_heads) * Config::kGroupSize + work.kv_head;
        u16 const* const k = static_cast<u16 const*>(args.q) + work.q_row * args.q_stride_row + k_head * args.q_stride_head;
        token.k = load_rope(k, lane * 8, rope_angles(args, work));
        token.v = load_cached(k + args.num_kv_heads * args.q_stride_head + lane * 8);
    }
    if constexpr (Config::k8Bit) {
        token.k_scale = args.k_scale_ptr != nullptr ? *args.k_scale_ptr : args.k_scale;
        token.v_scale = args.v_scale_ptr != nullptr ? *args.v_scale_ptr : args.v_scale;
    }
    return token;
}

// Eight 8-bit codes of values / scale: float32 products with 1 / scale, rounded to nearest even, saturated.
inline Vec8 quantize(RopeFloats const& values, float scale) {
    float const factor = 1.0f / scale;
    Vec8 codes{{0, 0}};
#pragma unroll
    for (u32 e = 0; e < 8; e += 2) {
        float const x = values.value[e] * factor, y = values.value[e + 1] * factor;
        u32 pair;
        if constexpr (Config::kKvType == Type::kFp8E4m3) {
            pair = pack_e4m3(x, y);
        } else {
            pair = float_to_int8(x) | float_to_int8(y) << 8;
        }
        codes.word[e / 4] |= pair << (e % 4 * 8);
    }
    return codes;
}

// Where this lane's eight elements of the token lie.
inline u8* place_in_cache(KvTensor const& tensor, Work const& work, u32 token, i32 page, u32 lane) {
    u32 const slot = Config::kPageSize == 0 ? token : token % kTokensPerPage;
    return const_cast<u8*>(tensor.base) + page * tensor.stride_page + slot * tensor.stride_token +
           work.kv_head * tensor.stride_head + lane * (8 * type_bytes(Config::kKvType));
}

// Before the copies of the last tile; k_page and v_page as copy_tile() takes them: lane i has the tile's i-th page. Each lane fences what
// it has written itself, and none passes the barrier before all have.
inline void append(KernelArgs const& args, Work const& work, NewToken const& token, i32 k_page, i32 v_page, u32 lane) {
    u32 const last = static_cast<u32>(work.len) - 1;
    if constexpr (Config::kPageSize != 0) {
        u32 const page = last % Config::kTile / min_of(kTokensPerPage, Config::kTile);  // of the tile
        k_page = __shfl_sync(0xffffffffu, k_page, page);
        v_page = __shfl_sync(0xffffffffu, v_page, page);
    }
    if (lane < kNewTokenLanes) {
        u8* const k = place_in_cache(args.k, work, last, k_page, lane);
        u8* const v = place_in_cache(args.v, work, last, v_page, lane);
        if constexpr (Config::k8Bit) {
            bool const rotated = Config::kRopeStyle != RopeStyle::kNone && lane * 8 < Config::kRotaryDim;
            RopeFloats const values = rotated ? rotate(token.k, lane * 8) : unpack<Config::kQType>(token.k.own);
            *reinterpret_cast<Vec8*>(k) = quantize(values, token.k_scale);
            *reinterpret_cast<Vec8*>(v) = quantize(unpack<Config::kQType>(token.v), token.v_scale);
        } else {
            *reinterpret_cast<Vec16*>(k) = rotate_to_16bit(token.k, lane * 8);
            *reinterpret_cast<Vec16*>(v) = token.v;
        }
    }
    order_writes_before_copies();
    __syncwarp();
}

}  // namespace xqajit::device
