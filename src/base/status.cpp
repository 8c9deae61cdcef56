#include "base/status.h"

namespace xqajit {

char const* status_name(xqajit_status code) {
    switch (code) {
        case XQAJIT_OK:
            return "ok";
        case XQAJIT_INVALID_ARGUMENT:
            return "invalid_argument";
        case XQAJIT_UNSUPPORTED:
            return "unsupported";
        case XQAJIT_NOT_PREPARED:
            return "not_prepared";
        case XQAJIT_COMPILE_FAILED:
            return "compile_failed";
        case XQAJIT_CACHE_CORRUPT:
            return "cache_corrupt";
        case XQAJIT_DRIVER_ERROR:
            return "driver_error";
        case XQAJIT_UNAVAILABLE:
            return "unavailable";
        case XQAJIT_OUT_OF_MEMORY:
            return "out_of_memory";
        case XQAJIT_INTERNAL:
            return "internal";
        case XQAJIT_INTERRUPTED:
            return "interrupted";
    }
    return "unknown";
}

std::string Status::to_string() const {
    if (ok()) return status_name(code_);
    return std::string(status_name(code_)) + ": " + message_;
}

}  // namespace xqajit
