// Barriers in shared memory that count arrivals and bytes, and the copies that report to them; sm_90 and later. One PTX instruction a
// function. A barrier is named by its address in shared memory; its phases have parity 0, 1, 0, ...
#pragma once

#include "common/memory.cuh"

namespace xqajit::device {

inline void init_barrier(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals) : "memory");
}

// The copy engine sees what init_barrier() wrote.
inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }

inline void arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" : : "r"(barrier) : "memory"); }

// This thread's reads and writes of shared memory come before copies that are issued after it is told so: an arrival alone does not order
// them, as the copy engine goes another way (PTX ISA: proxies).
inline void order_before_copies() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// The same for what this thread has written to global memory, which the copy engine is to read.
inline void order_writes_before_copies() { asm volatile("fence.proxy.async.global;" : : : "memory"); }

// Arrives, and the phase waits for so many bytes too.
inline void arrive_expecting(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}

// Until the phase of this parity has ended. True at once for the phase before the first, whose parity is 1.
inline void wait_phase(u32 barrier, u32 parity) {
    asm volatile(
        "{\n\t.reg .pred ended;\n\tagain:\n\tmbarrier.try_wait.parity.shared.b64 ended, [%0], %1;\n\t@!ended bra again;\n\t}"
        :
        : "r"(barrier), "r"(parity)
        : "memory");
}

inline void prefetch_map(TensorMap const& map) { asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory"); }

// True in one lane of the warp, which the compiler knows to be one (PTX ISA: elect.sync).
inline bool elect_one() {
    u32 elected;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(elected));
    return elected != 0;
}

// One box of the map, from (element, head, token, page) on, to shared memory; its bytes count at the barrier.
inline void copy_box(u32 shared, TensorMap const& map, u32 element, u32 head, u32 token, i32 page, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
        :
        : "r"(shared), "l"(&map), "r"(element), "r"(head), "r"(token), "r"(page), "r"(barrier)
        : "memory");
}

}  // namespace xqajit::device
