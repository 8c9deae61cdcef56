// What every fallible function returns. No exception is used for an expected failure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "xqajit/xqajit.h"

namespace xqajit {

class [[nodiscard]] Status {
public:
    Status() = default;
    // message: one line with field, value and accepted range. detail: a longer text (a compiler log), may be empty.
    Status(xqajit_status code, std::string message, std::string detail = {})
        : code_(code), message_(std::move(message)), detail_(std::move(detail)) {}

    bool ok() const { return code_ == XQAJIT_OK; }
    xqajit_status code() const { return code_; }
    std::string const& message() const { return message_; }
    std::string const& detail() const { return detail_; }
    std::string to_string() const;  // "compile_failed: message"

private:
    xqajit_status code_ = XQAJIT_OK;
    std::string message_;
    std::string detail_;
};

char const* status_name(xqajit_status code);  // "compile_failed"

inline Status invalid_argument(std::string message) { return {XQAJIT_INVALID_ARGUMENT, std::move(message)}; }
inline Status unsupported(std::string message) { return {XQAJIT_UNSUPPORTED, std::move(message)}; }
inline Status unavailable(std::string message) { return {XQAJIT_UNAVAILABLE, std::move(message)}; }

// A T or the Status that says why there is none.
template <class T> class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::move(value)) {}
    Result(Status status) : state_(std::move(status)) {}

    bool ok() const { return state_.index() == 0; }
    T& value() & { return std::get<0>(state_); }
    T const& value() const& { return std::get<0>(state_); }
    T&& value() && { return std::get<0>(std::move(state_)); }
    T* operator->() { return &std::get<0>(state_); }
    T const* operator->() const { return &std::get<0>(state_); }
    T& operator*() & { return value(); }
    T const& operator*() const& { return value(); }
    Status status() const { return ok() ? Status() : std::get<1>(state_); }

private:
    std::variant<T, Status> state_;
};

// Returns the failed Status of `expression` from the calling function.
#define XQAJIT_RETURN_IF_ERROR(expression)                                                               \
    do {                                                                                                 \
        if (::xqajit::Status xqajit_status_ = (expression); !xqajit_status_.ok()) return xqajit_status_; \
    } while (false)

}  // namespace xqajit
