// The device source of the read roofline: every byte once, 16 bytes a load, nothing else.
#pragma once

namespace xqajit::measure {

inline constexpr char kReadKernel[] = R"(
struct ReadArgs {
    uint4 const* data;
    unsigned long long count; // of 16-byte words
    unsigned int* sink;
};

__device__ uint4 load(uint4 const* address) {
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(address));
    return value;
}

extern "C" __global__ void __launch_bounds__(512) read_bytes(ReadArgs const args) {
    constexpr int kUnroll = 8;
    unsigned long long const stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int sum = 0;
    for (; i + (kUnroll - 1) * stride < args.count; i += kUnroll * stride) {
        uint4 value[kUnroll];
#pragma unroll
        for (int n = 0; n < kUnroll; ++n) value[n] = load(args.data + i + n * stride);
#pragma unroll
        for (int n = 0; n < kUnroll; ++n) sum += value[n].x ^ value[n].y ^ value[n].z ^ value[n].w;
    }
    for (; i < args.count; i += stride) {
        uint4 const value = load(args.data + i);
        sum += value.x ^ value.y ^ value.z ^ value.w;
    }
    if (sum == 0x9E3779B9u) *args.sink = sum; // the loads have a use that the compiler cannot rule out
}
)";

struct ReadArgs {
    void const* data;
    unsigned long long count;
    unsigned int* sink;
};

}  // namespace xqajit::measure
