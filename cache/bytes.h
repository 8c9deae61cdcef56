// The integers and digests of the cache's file formats, little endian: see FORMAT.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/hash.h"

namespace xqajit::cache {

class ByteWriter {
public:
    explicit ByteWriter(std::size_t size = 0) { bytes_.reserve(size); }
    void raw(std::string_view bytes) { bytes_.append(bytes); }
    void integer(std::uint64_t value, int width) {
        for (int i = 0; i < width; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i) & 0xff));
    }
    void digest(Digest const& digest) {
        integer(digest.low, 8);
        integer(digest.high, 8);
    }
    std::string_view written() const { return bytes_; }
    std::string take() { return std::move(bytes_); }

private:
    std::string bytes_;
};

// Each read says false, and reads nothing, where fewer bytes are left.
class ByteReader {
public:
    explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
    std::size_t left() const { return rest_.size(); }
    bool raw(std::uint64_t size, std::string_view& bytes) {
        if (size > rest_.size()) return false;
        bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
    }
    bool integer(int width, std::uint64_t& value) {
        std::string_view bytes;
        if (!raw(static_cast<std::uint64_t>(width), bytes)) return false;
        value = 0;
        for (int i = 0; i < width; ++i) value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
        return true;
    }
    bool digest(Digest& digest) { return integer(8, digest.low) && integer(8, digest.high); }

private:
    std::string_view rest_;
};

}  // namespace xqajit::cache
