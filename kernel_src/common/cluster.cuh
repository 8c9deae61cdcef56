// Thread block clusters, sm_90 and later: blocks that run at the same time and read one another's shared memory. One PTX instruction
// a function. A launch without clusters has args.cluster_size 1 and never comes here.
#pragma once

#include "common/memory.cuh"

namespace xqajit::device {

#if __CUDA_ARCH__ >= 900
constexpr bool kArchHasClusters = true;
#else
constexpr bool kArchHasClusters = false;
#endif

// What this thread wrote before, every thread of the cluster may read after it has waited. All threads of all blocks do both.
inline void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
#endif
}

inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
#endif
}

inline void sync_cluster() {
    arrive_at_cluster();
    wait_for_cluster();
}

// Where block `rank` of the cluster has what lies at `shared` in this one.
inline u32 peer_address(u32 shared, u32 rank) {
    u32 address = shared;
#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
#endif
    return address;
}

inline Pair load_peer_pair(u32 address) {
    Pair v{};
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
#endif
    return v;
}

inline Quad load_peer_quad(u32 address) {
    Quad v{};
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.value[0]), "=f"(v.value[1]), "=f"(v.value[2]), "=f"(v.value[3])
                 : "r"(address)
                 : "memory");
#endif
    return v;
}

}  // namespace xqajit::device
