# Third-party headers. All are compiled in, so that the library needs none of these packages where it runs.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)

find_path(XQAJIT_SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
find_path(XQAJIT_FMT_INCLUDE fmt/format.h REQUIRED)
add_library(xqajit_spdlog INTERFACE)
target_include_directories(xqajit_spdlog SYSTEM INTERFACE ${XQAJIT_SPDLOG_INCLUDE} ${XQAJIT_FMT_INCLUDE})
file(STRINGS ${XQAJIT_FMT_INCLUDE}/fmt/core.h fmt_version REGEX "define FMT_VERSION (9|10)[0-9][0-9][0-9][0-9]$")
if(fmt_version)
    add_library(xqajit_fmt STATIC cmake/fmt.cpp) # once, instead of in every file
    target_include_directories(xqajit_fmt SYSTEM PRIVATE ${XQAJIT_FMT_INCLUDE})
    target_link_libraries(xqajit_fmt PRIVATE xqajit_flags)
    target_link_libraries(xqajit_spdlog INTERFACE xqajit_fmt)
else()
    target_compile_definitions(xqajit_spdlog INTERFACE FMT_HEADER_ONLY)
endif()

find_path(XQAJIT_XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(xqajit_xxhash INTERFACE)
target_include_directories(xqajit_xxhash SYSTEM INTERFACE ${XQAJIT_XXHASH_INCLUDE})

# cuda.h and nvrtc.h give types and constants only; both libraries are opened at run time.
file(GLOB xqajit_wheel_includes ${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/nvidia/*/include)
set(xqajit_cuda_hints ${XQAJIT_CUDA_INCLUDE} $ENV{CUDA_HOME}/include /usr/local/cuda/include ${xqajit_wheel_includes})
find_path(XQAJIT_CUDA_H cuda.h HINTS ${xqajit_cuda_hints})
find_path(XQAJIT_NVRTC_H nvrtc.h HINTS ${xqajit_cuda_hints})
if(NOT XQAJIT_CUDA_H OR NOT XQAJIT_NVRTC_H)
    message(FATAL_ERROR "cuda.h and nvrtc.h not found: install a CUDA toolkit, run tools/test.sh, or pass -DXQAJIT_CUDA_INCLUDE=DIR")
endif()
add_library(xqajit_cuda_headers INTERFACE)
target_include_directories(xqajit_cuda_headers SYSTEM INTERFACE ${XQAJIT_CUDA_H})
add_library(xqajit_nvrtc_headers INTERFACE)
target_include_directories(xqajit_nvrtc_headers SYSTEM INTERFACE ${XQAJIT_NVRTC_H})
