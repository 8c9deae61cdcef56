// wgmma: products of a group of four warps, sm_90a. Operands in shared memory are rows of 64 or 128 bytes whose
// vectors of 16 bytes the copy has swizzled, eight rows to 1024 bytes.
#pragma once

#include "common/memory.cuh"

namespace xqajit::device {

// What is the same in all lanes, and the compiler knows it: else each product waits for its descriptor to reach uniform registers.
inline u32 uniform(u32 value) { return __shfl_sync(0xffffffffu, value, 0); }

// PTX ISA: matrix descriptor of rows of kRowBytes, eight of which are an atom of the swizzle. `address`: of the first element, in shared
// memory, uniform.
template <u32 kRowBytes = 128> inline u64 matrix_at(u32 address) {
    static_assert(kRowBytes == 128 || kRowBytes == 64);
    constexpr u64 kSwizzle = kRowBytes == 128 ? 1 : 2;
    return static_cast<u64>(address >> 4) | (u64{1} << 16) | (u64{8 * kRowBytes >> 4} << 32) | (kSwizzle << 62);
}

inline u64 advanced(u64 matrix, u32 bytes) { return matrix + (bytes >> 4); }

// Where vector `vector` of row `row` lies, counted from the first row of whole atoms.
template <u32 kRowBytes> inline u32 swizzled(u32 row, u32 vector) {
    return row * kRowBytes + ((vector ^ (kRowBytes == 128 ? row % 8 : row / 2 % 4)) << 4);
}

// Before the first product of several, and after registers of theirs were written.
inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }

// After the last of several; none of their registers is touched until they are done.
inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }

// Until all products so far are done, but for those of the last kPending commits.
template <u32 kPending = 0> inline void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
}

inline void end_products() {
    commit_products();
    wait_for_products();
}

// The 64 x N accumulators, as operands: this lane has rows lane/4 and lane/4 + 8 of its warp's 16, of each eight columns 2*(lane%4) and
// the next; [N / 8][row][column].
#define XQAJIT_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define XQAJIT_D8(d, i) XQAJIT_D4(d, i), XQAJIT_D4(d, i + 4)
#define XQAJIT_D16(d, i) XQAJIT_D8(d, i), XQAJIT_D8(d, i + 8)
#define XQAJIT_D32(d) XQAJIT_D16(d, 0), XQAJIT_D16(d, 16)
#define XQAJIT_N4 "%0, %1, %2, %3"
#define XQAJIT_N8 XQAJIT_N4 ", %4, %5, %6, %7"
#define XQAJIT_N16 XQAJIT_N8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define XQAJIT_N32 XQAJIT_N16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

// D (+)= A B: `shape` "m64n8k16" and so on, `types` of A and B, `names` of D's registers, `a` and `b` of the operands, `flag` whether D is
// added to. `tail`: the operands' signs and, of 16-bit types, whether they are transposed.
#define XQAJIT_PRODUCT(shape, types, names, a, b, flag, tail)                                                               \
    "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, " flag ", 0;\n\twgmma.mma_async.sync.aligned." shape ".f32." types " {" names \
    "}, " a ", " b ", add, 1, 1" tail ";\n\t}"

// A and B in shared memory. 16 bits: k = 16; rows of both run along k, or, if kTransposed, along m and n. fp8: k = 32, along k.
#define XQAJIT_DEFINE_MULTIPLY(floats, n, names, d, i0, i1, i2, i3, i4, i5, i6)                                                    \
    template <bool kFp16, bool kTransposed> inline void multiply(float(&acc)[floats], u64 a, u64 b, u32 add) {                     \
        if constexpr (kFp16) {                                                                                                     \
            asm volatile(XQAJIT_PRODUCT("m64n" n "k16", "f16.f16", names, "%" i0, "%" i1, "%" i2, ", %" i3 ", %" i3)               \
                         : d                                                                                                       \
                         : "l"(a), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0));                                                    \
        } else {                                                                                                                   \
            asm volatile(XQAJIT_PRODUCT("m64n" n "k16", "bf16.bf16", names, "%" i0, "%" i1, "%" i2, ", %" i3 ", %" i3)             \
                         : d                                                                                                       \
                         : "l"(a), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0));                                                    \
        }                                                                                                                          \
    }                                                                                                                              \
    inline void multiply_fp8(float(&acc)[floats], u64 a, u64 b, u32 add) {                                                         \
        asm volatile(XQAJIT_PRODUCT("m64n" n "k32", "e4m3.e4m3", names, "%" i0, "%" i1, "%" i2, "")                                \
                     : d                                                                                                           \
                     : "l"(a), "l"(b), "r"(add));                                                                                  \
    }                                                                                                                              \
    /* A in registers, as mma.m16n8k16 or, of fp8, .m16n8k32 has it. */                                                            \
    template <bool kFp16, bool kTransposed> inline void multiply(float(&acc)[floats], u32 const(&a)[4], u64 b, u32 add) {          \
        if constexpr (kFp16) {                                                                                                     \
            asm volatile(                                                                                                          \
                XQAJIT_PRODUCT("m64n" n "k16", "f16.f16", names, "{%" i0 ", %" i1 ", %" i2 ", %" i3 "}", "%" i4, "%" i5, ", %" i6) \
                : d                                                                                                                \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0));                         \
        } else {                                                                                                                   \
            asm volatile(XQAJIT_PRODUCT("m64n" n "k16", "bf16.bf16", names, "{%" i0 ", %" i1 ", %" i2 ", %" i3 "}", "%" i4,        \
                                        "%" i5, ", %" i6)                                                                          \
                         : d                                                                                                       \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0));                \
        }                                                                                                                          \
    }                                                                                                                              \
    inline void multiply_fp8(float(&acc)[floats], u32 const(&a)[4], u64 b, u32 add) {                                              \
        asm volatile(                                                                                                              \
            XQAJIT_PRODUCT("m64n" n "k32", "e4m3.e4m3", names, "{%" i0 ", %" i1 ", %" i2 ", %" i3 "}", "%" i4, "%" i5, "")         \
            : d                                                                                                                    \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                                       \
    }

XQAJIT_DEFINE_MULTIPLY(4, "8", XQAJIT_N4, XQAJIT_D4(acc, 0), "4", "5", "6", "7", "8", "9", "10")
XQAJIT_DEFINE_MULTIPLY(8, "16", XQAJIT_N8, XQAJIT_D8(acc, 0), "8", "9", "10", "11", "12", "13", "14")
XQAJIT_DEFINE_MULTIPLY(16, "32", XQAJIT_N16, XQAJIT_D16(acc, 0), "16", "17", "18", "19", "20", "21", "22")
XQAJIT_DEFINE_MULTIPLY(32, "64", XQAJIT_N32, XQAJIT_D32(acc), "32", "33", "34", "35", "36", "37", "38")

}  // namespace xqajit::device
