// wgmma: products of a group of four warps, sm_90a. One PTX instruction a function. Operands in shared memory are rows of 128 bytes whose
// vectors of 16 bytes the copy has swizzled, eight rows to 1024 bytes.
#pragma once

#include "common/memory.cuh"

namespace xqajit::device {

// PTX ISA: matrix descriptor, 128-byte swizzle, eight rows 1024 bytes apart. `address`: of the first element, in shared memory, the same
// in all lanes. The shuffle tells the compiler so: else each product waits for its descriptor to become uniform.
inline u64 matrix_at(u32 address) {
    return static_cast<u64>(__shfl_sync(0xffffffffu, address, 0) >> 4) | (u64{1} << 16) | (u64{1024 >> 4} << 32) | (u64{1} << 62);
}

inline u64 advanced(u64 matrix, u32 bytes) { return matrix + (bytes >> 4); }

// Where vector `vector` of row `row` lies, from the first row of 1024 on.
inline u32 swizzled(u32 row, u32 vector) { return row * 128 + ((vector ^ row % 8) << 4); }

// Four 8 x 8 matrices of 16-bit elements, as mma has its accumulators: lane l names row l % 8 of matrix l / 8 (PTX ISA: stmatrix).
inline void store_matrices(u32 address, u32 const (&word)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
}

inline void store_shared(u32 address, Vec16 vec) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(vec.word[0]), "r"(vec.word[1]), "r"(vec.word[2]), "r"(vec.word[3])
                 : "memory");
}

inline void store_shared(u32 address, u32 word) { asm volatile("st.shared.u32 [%0], %1;" : : "r"(address), "r"(word) : "memory"); }

inline u32 load_shared_word(u32 address) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
    return word;
}

inline u32 load_shared_u16(u32 address) {
    u16 half;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(address));
    return half;
}

// Whether any of the group's 128 threads says so; a barrier as well (PTX ISA: barrier.red).
inline bool any_of_group(u32 barrier, bool says) {
    u32 any;
    asm volatile(
        "{\n\t.reg .pred says, any;\n\tsetp.ne.u32 says, %2, 0;\n\tbarrier.red.or.pred any, %1, 128, says;\n\tselp.u32 %0, 1, 0, "
        "any;\n\t}"
        : "=r"(any)
        : "r"(barrier), "r"(static_cast<u32>(says))
        : "memory");
    return any != 0;
}

// Before the first product of several, and after registers of theirs were written.
inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }

// Until all products so far are done.
inline void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
}

// Operands of the 64 x N accumulators: this lane has rows lane/4 and lane/4 + 8 of its warp's 16, of each eight columns 2*(lane%4) and the
// next; [N / 8][row][column].
#define XQAJIT_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define XQAJIT_D16(d, i) XQAJIT_D4(d, i), XQAJIT_D4(d, i + 4), XQAJIT_D4(d, i + 8), XQAJIT_D4(d, i + 12)
#define XQAJIT_D32(d) XQAJIT_D16(d, 0), XQAJIT_D16(d, 16)
#define XQAJIT_NAMES16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define XQAJIT_NAMES32 XQAJIT_NAMES16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

// D (+)= A B with A and B in shared memory, k = 16. Not kTransposed: rows of both run along k. kTransposed: along m and n.
#define XQAJIT_MULTIPLY_SHARED(n, type, names, d, a, b, add, p, q, r, t)                                                      \
    asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" r ", 0;\n\twgmma.mma_async.sync.aligned.m64n" n "k16.f32." type \
                 " {" names "}, %" p ", %" q ", add, 1, 1, %" t ", %" t ";\n\t}"                                              \
                 : d                                                                                                          \
                 : "l"(a), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0))

// The same with A in registers, as mma.m16n8k16 has it.
#define XQAJIT_MULTIPLY_REGISTERS(n, type, names, d, a, b, add, p0, p1, p2, p3, q, r, t)                                      \
    asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" r ", 0;\n\twgmma.mma_async.sync.aligned.m64n" n "k16.f32." type \
                 " {" names "}, {%" p0 ", %" p1 ", %" p2 ", %" p3 "}, %" q ", add, 1, 1, %" t ";\n\t}"                        \
                 : d                                                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0))

template <bool kFp16, bool kTransposed> inline void multiply(float (&d)[16], u64 a, u64 b, u32 add) {
    if constexpr (kFp16) {
        XQAJIT_MULTIPLY_SHARED("32", "f16.f16", XQAJIT_NAMES16, XQAJIT_D16(d, 0), a, b, add, "16", "17", "18", "19");
    } else {
        XQAJIT_MULTIPLY_SHARED("32", "bf16.bf16", XQAJIT_NAMES16, XQAJIT_D16(d, 0), a, b, add, "16", "17", "18", "19");
    }
}

template <bool kFp16, bool kTransposed> inline void multiply(float (&d)[32], u64 a, u64 b, u32 add) {
    if constexpr (kFp16) {
        XQAJIT_MULTIPLY_SHARED("64", "f16.f16", XQAJIT_NAMES32, XQAJIT_D32(d), a, b, add, "32", "33", "34", "35");
    } else {
        XQAJIT_MULTIPLY_SHARED("64", "bf16.bf16", XQAJIT_NAMES32, XQAJIT_D32(d), a, b, add, "32", "33", "34", "35");
    }
}

// 8-bit KV alone has A in registers, and is fp16 there.
template <bool kTransposed> inline void multiply(float (&d)[16], u32 const (&a)[4], u64 b, u32 add) {
    XQAJIT_MULTIPLY_REGISTERS("32", "f16.f16", XQAJIT_NAMES16, XQAJIT_D16(d, 0), a, b, add, "16", "17", "18", "19", "20", "21",
                              "22");
}

template <bool kTransposed> inline void multiply(float (&d)[32], u32 const (&a)[4], u64 b, u32 add) {
    XQAJIT_MULTIPLY_REGISTERS("64", "f16.f16", XQAJIT_NAMES32, XQAJIT_D32(d), a, b, add, "32", "33", "34", "35", "36", "37", "38");
}

}  // namespace xqajit::device
