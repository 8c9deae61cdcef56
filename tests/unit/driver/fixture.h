// The fake driver's controls and the opened library, for a test that needs both. Each case is a process of its own (CTest), so that it
// may leave the fake as it likes.
#pragma once

#include "catch.h"
#include "driver/cuda_functions.h"
#include "driver/device_memory.h"
#include "driver/module.h"
#include "fake_cuda.h"

namespace xqajit::driver {

inline FakeCuda const& fake() {
    FakeCuda const* const controls = fake_cuda();
    if (controls == nullptr) throw std::runtime_error("libcuda.so.1 is not the fake: set LD_LIBRARY_PATH to <build>/fake/cuda");
    return *controls;
}

inline CudaLibrary const& cuda() {
    Result<CudaLibrary const*> const library = open_cuda();
    if (!library.ok()) throw std::runtime_error(library.status().to_string());
    return **library;
}

// A value that the test can't go on without.
template <class T> T must(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.status().to_string());
    return std::move(result).value();
}

inline bool contains(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

inline constexpr Image kCubin{"\177ELF an image", false};
inline constexpr Image kPtx{".version 8.3 an image", true};

}  // namespace xqajit::driver
