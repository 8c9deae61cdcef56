// What a warm launch is looked up by.
#pragma once

#include <cstdint>

#include "params/xqa_params.h"

namespace xqajit {

// A normalized shape without its run-time values, in one context. Every field that is not named in of() is part of it, so that
// a field added to XQAParams can't be forgotten.
class PreparedKey {
public:
    static PreparedKey of(XQAParams const& normalized, std::uint64_t context_id);
    bool operator==(PreparedKey const& other) const;
    std::uint64_t hash() const;

private:
    XQAParams shape_;
    std::uint32_t context_low_;  // two halves, so that no padding is compared
    std::uint32_t context_high_;
};
static_assert(sizeof(PreparedKey) == sizeof(XQAParams) + 8, "compared and hashed as bytes: no padding");

}  // namespace xqajit
