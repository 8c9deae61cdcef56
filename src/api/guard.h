// What the functions of the C interface share: no exception leaves them, every failure leaves its text in this thread's last error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "params/versioned.h"
#include "service/service.h"
#include "xqajit/xqajit.h"

struct xqajit_service {
    std::unique_ptr<xqajit::Service> service;
};

namespace xqajit::api {

inline thread_local std::string last_error;

inline void remember(char const* text) noexcept {
    try {
        last_error = text;
    } catch (...) {
        last_error.clear();  // out of memory while telling so: the code alone must do
    }
}

inline xqajit_status report(Status const& status) noexcept {
    if (status.ok()) return XQAJIT_OK;
    try {
        last_error = status.detail().empty() ? status.message() : status.message() + "\n" + status.detail();
    } catch (...) {
        last_error.clear();
    }
    return status.code();
}

template <class Body> xqajit_status guarded(Body const& body) noexcept {
    try {
        return report(body());
    } catch (std::bad_alloc const&) {
        remember("out of host memory");
        return XQAJIT_OUT_OF_MEMORY;
    } catch (std::exception const& error) {
        remember(error.what());
        return XQAJIT_INTERNAL;
    } catch (...) {
        remember("an exception of unknown type");
        return XQAJIT_INTERNAL;
    }
}

inline Status is_null(char const* name) { return invalid_argument(std::string(name) + " is null: a pointer is accepted"); }

#define XQAJIT_REQUIRE(pointer) \
    if ((pointer) == nullptr) return xqajit::api::is_null(#pointer)

inline Status hand_out(std::string const& text, char** out) {
    auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    *out = copy;
    return {};
}

inline Status hand_out(Result<std::string> const& text, char** out) {
    if (!text.ok()) return text.status();
    return hand_out(*text, out);
}

// Fills as much of the caller's struct as it has room for.
template <class T> Status hand_out_struct(T const& value, std::size_t minimum, T* out) {
    std::size_t const size = out->struct_size;
    T known{};
    XQAJIT_RETURN_IF_ERROR(copy_versioned(*out, minimum, known));  // judges struct_size
    std::memcpy(static_cast<void*>(out), &value, std::min(size, sizeof(T)));
    out->struct_size = static_cast<std::uint32_t>(size);
    return {};
}

}  // namespace xqajit::api
