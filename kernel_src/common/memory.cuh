// Global memory, atomics and grid dependencies. One PTX instruction a function.
#pragma once

#include "common/contract.h"

namespace xqajit::device {

struct alignas(16) Vec16 {  // 16 bytes: 8 elements of 16 bits or 16 of 8 bits
    u32 word[4];
};

struct alignas(8) Vec8 {
    u32 word[2];
};

// Streamed once: no L1 line is kept (PTX ISA: ld.global.nc).
inline void load_streaming(Vec8& v, u8 const* address) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "l"(address));
}

inline void load_streaming(Vec16& v, u8 const* address) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address));
}

inline Vec16 load_cached(void const* address) {
    Vec16 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address));
    return v;
}

// A hint: the line may come to L2, and no value is seen (PTX ISA: prefetch).
inline void prefetch_l2(void const* address) { asm volatile("prefetch.global.L2 [%0];" : : "l"(address)); }

struct Pair {
    float x, y;
};

struct alignas(16) Quad {
    float value[4];
};

// Past L1: what another block wrote during this launch (PTX ISA: ld, .cg).
inline Pair load_l2_pair(float const* address) {  // 8-byte aligned
    Pair v;
    asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(address) : "memory");
    return v;
}

inline Quad load_l2_quad(float const* address) {  // 16-byte aligned
    Quad v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.value[0]), "=f"(v.value[1]), "=f"(v.value[2]), "=f"(v.value[3])
                 : "l"(address)
                 : "memory");
    return v;
}

// Shared memory, read anew each time: the compiler would keep what a loop does not change in registers that the loop needs.
inline u32 shared_address(void const* pointer) {
    u64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
    return static_cast<u32>(address);
}

inline Vec16 load_shared(u32 address) {
    Vec16 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "r"(address));
    return v;
}

inline Vec8 load_shared_half(u32 address) {
    Vec8 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "r"(address));
    return v;
}

// Four 8 x 8 matrices of 16-bit elements, as mma has its accumulators: lane l names row l % 8 of matrix l / 8 (PTX ISA: stmatrix).
// No C++ load reads what it writes, so other loads may pass it.
inline void store_matrices(u32 address, u32 const (&word)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]));
}

inline void store_shared(u32 address, Vec16 vec) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(vec.word[0]), "r"(vec.word[1]), "r"(vec.word[2]), "r"(vec.word[3])
                 : "memory");
}

inline void store_shared(u32 address, Vec8 vec) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" : : "r"(address), "r"(vec.word[0]), "r"(vec.word[1]) : "memory");
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

// 16 bytes from global to shared memory behind the thread's back, zeros where not `valid` (PTX ISA: cp.async). Past L1.
inline void copy_async(u32 shared, u8 const* address, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(shared), "l"(address), "r"(valid ? 16u : 0u) : "memory");
}

// The copies since the last commit are one group; groups end in order.
inline void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }

// Until at most kPending of the thread's groups are under way.
template <u32 kPending> inline void wait_copies() { asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory"); }

// Four 8 x 8 matrices of 16-bit elements, transposed: lane l has the address of row l % 8 of matrix l / 8 (PTX ISA: ldmatrix).
inline Vec16 load_matrices_transposed(u32 address) {
    Vec16 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "r"(address));
    return v;
}

// A barrier of `threads` threads of the block (PTX ISA: barrier.sync); 0 is __syncthreads'.
inline void sync_some(u32 barrier, u32 threads) { asm volatile("barrier.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory"); }

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

// Counts one arrival and wraps to 0 at the last (PTX ISA: atom.inc). Release of what this block wrote, acquire of what earlier
// arrivals wrote. Returns the arrivals before this one.
inline u32 count_arrival(u32* counter, u32 arrivals) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(arrivals - 1) : "memory");
    return before;
}

// Adds to a counter of 64 bits; the order does not matter (PTX ISA: red).
inline void add_to(u64* counter, u64 value) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" : : "l"(counter), "l"(value) : "memory");
}

// Lets the grids that depend on this one start, as far as there is room: they wait for its end before they read anything.
inline void let_next_grids_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits for the grids that this one depends on (programmatic dependent launch); nothing they may write is read before.
inline void wait_for_previous_grids() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace xqajit::device
