#include "service/device_checks.h"

#include <fmt/format.h>

#include <vector>

#include "driver/cuda_functions.h"

namespace xqajit {
namespace {

Result<std::vector<std::int32_t>> copy_back(driver::CudaLibrary const& cuda, std::int32_t const* source, std::size_t count,
                                            CUstream stream) {
    std::vector<std::int32_t> values(count);
    auto const address = reinterpret_cast<CUdeviceptr>(source);
    if (CUresult const result = cuda.cuMemcpyDtoHAsync(values.data(), address, count * sizeof(std::int32_t), stream);
        result != CUDA_SUCCESS)
        return driver::driver_error(cuda, "cuMemcpyDtoHAsync", result);
    if (CUresult const result = cuda.cuStreamSynchronize(stream); result != CUDA_SUCCESS)
        return driver::driver_error(cuda, "cuStreamSynchronize", result);
    return values;
}

}  // namespace

Status check_lengths(XQAParams const& params, RunArgs const& args, std::span<std::int32_t const> seq_lens,
                     std::span<std::int32_t const> cu_q_len) {
    std::uint64_t const held = params.page_size != 0 ? std::uint64_t{args.max_pages} * params.page_size : args.capacity;
    for (std::size_t b = 0; b < seq_lens.size(); ++b) {
        if (seq_lens[b] < 0) return invalid_argument(fmt::format("seq_lens[{}] is {}: 0 and up is accepted", b, seq_lens[b]));
        auto const length = static_cast<std::uint64_t>(seq_lens[b]);
        if (length > held)
            return invalid_argument(fmt::format("seq_lens[{}] is {}: the KV memory holds {} tokens", b, length, held));
        if (length > args.max_len)
            return invalid_argument(fmt::format("seq_lens[{}] is {}: max_len is {}", b, length, args.max_len));
    }
    for (std::size_t b = 0; b + 1 < cu_q_len.size(); ++b) {
        std::int64_t const rows = std::int64_t{cu_q_len[b + 1]} - cu_q_len[b];
        if (b == 0 && cu_q_len[0] != 0) return invalid_argument(fmt::format("cu_q_len[0] is {}: 0 is accepted", cu_q_len[0]));
        if (rows < 0 || rows > std::int64_t{args.q_len}) {
            return invalid_argument(
                fmt::format("cu_q_len[{}] - cu_q_len[{}] is {}: 0..{} (q_len) is accepted", b + 1, b, rows, args.q_len));
        }
    }
    return {};
}

Status check_device_data(XQAParams const& params, RunArgs const& args, CUstream stream) {
    Result<driver::CudaLibrary const*> const library = driver::open_cuda();
    if (!library.ok()) return library.status();
    driver::CudaLibrary const& cuda = **library;
    Result<std::vector<std::int32_t>> const seq_lens = copy_back(cuda, args.seq_lens, args.batch, stream);
    if (!seq_lens.ok()) return seq_lens.status();
    Result<std::vector<std::int32_t>> cu_q_len = std::vector<std::int32_t>();
    if (args.cu_q_len != nullptr) cu_q_len = copy_back(cuda, args.cu_q_len, std::size_t{args.batch} + 1, stream);
    if (!cu_q_len.ok()) return cu_q_len.status();
    return check_lengths(params, args, *seq_lens, *cu_q_len);
}

}  // namespace xqajit
