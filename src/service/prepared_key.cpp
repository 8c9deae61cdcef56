#include "service/prepared_key.h"

#include <cstring>
#include <span>

#include "base/hash.h"

namespace xqajit {

PreparedKey PreparedKey::of(XQAParams const& normalized, std::uint64_t context_id) {
    PreparedKey key;
    key.shape_ = normalized;
    XQAParams& shape = key.shape_;
    // Only whether these are zero counts: for the kernel, or, of nb_sub_seq, for which family serves the shape.
    shape.sliding_window = normalized.sliding_window != 0;
    shape.softcap = normalized.softcap != 0.0f ? 1.0f : 0.0f;
    shape.skip_softmax_threshold = normalized.skip_softmax_threshold != 0.0f ? 1.0f : 0.0f;
    shape.nb_sub_seq = normalized.nb_sub_seq != 0;
    // These don't at all.
    shape.qk_scale = 0.0f;
    shape.pdl = 0;
    shape.on_miss = 0;
    key.context_low_ = static_cast<std::uint32_t>(context_id);
    key.context_high_ = static_cast<std::uint32_t>(context_id >> 32);
    return key;
}

bool PreparedKey::operator==(PreparedKey const& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }

std::uint64_t PreparedKey::hash() const { return digest_of(std::as_bytes(std::span(this, 1))).low; }

}  // namespace xqajit
