#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli.h"

namespace xqajit::cli {

ExitCode exit_code_of(xqajit_status status) {
    switch (status) {
        case XQAJIT_OK:
            return kDone;
        case XQAJIT_INVALID_ARGUMENT:
            return kUsage;
        case XQAJIT_UNAVAILABLE:
            return kNotHere;
        default:
            return kFailed;
    }
}

std::string read_text_file(std::string const& path) {
    constexpr std::size_t kMaxBytes = 64u << 20;  // more than the library takes: it says what is too much
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
        throw Error(XQAJIT_INVALID_ARGUMENT, path + ": a directory can't be read as a file");
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(XQAJIT_INVALID_ARGUMENT, path + ": " + std::strerror(errno));
    std::string text;
    char part[65536];
    while (text.size() < kMaxBytes && (file.read(part, sizeof part) || file.gcount() > 0))
        text.append(part, static_cast<std::size_t>(file.gcount()));
    return text;
}

void write_text_file(std::string const& path, std::string const& text) {
    std::ofstream file(path, std::ios::binary);
    if (!file.write(text.data(), static_cast<std::streamsize>(text.size())).flush())
        throw Error(XQAJIT_INVALID_ARGUMENT, path + ": " + std::strerror(errno));
}

void check_writable(std::string const& path) {
    bool const is_new = !std::filesystem::exists(path);
    if (!std::ofstream(path, std::ios::app)) throw Error(XQAJIT_INVALID_ARGUMENT, path + ": " + std::strerror(errno));
    std::error_code ignored;
    if (is_new) std::filesystem::remove(path, ignored);
}

std::optional<std::uint64_t> whole_number(std::string_view text, std::uint64_t least, std::uint64_t most) {
    std::uint64_t number = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    bool const plain = error == std::errc() && end == text.data() + text.size() && (text == "0" || text.front() != '0');
    if (!plain || number < least || number > most) return std::nullopt;
    return number;
}

std::optional<Shard> shard_of(std::string_view text) {
    std::size_t const slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    auto const count = whole_number(text.substr(slash + 1), 1, kMaxShards);
    auto const index = count ? whole_number(text.substr(0, slash), 0, *count - 1) : std::nullopt;
    if (!index) return std::nullopt;
    return Shard{static_cast<std::uint32_t>(*index), static_cast<std::uint32_t>(*count)};
}

void print(std::string const& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

bool output_arrived() {
    bool const failed_before = std::ferror(stdout) != 0;
    if (std::fflush(stdout) == 0 && !failed_before) return true;
    print_error(std::string("standard output: ") + (failed_before ? "not all could be written" : std::strerror(errno)));
    return false;
}

void print_error(std::string const& text) {
    std::string safe;  // the lines of a compiler's log stay lines
    for (std::size_t begin = 0; begin <= text.size();) {
        std::size_t const end = std::min(text.find('\n', begin), text.size());
        safe += (begin == 0 ? "" : "\n") + printable(text.substr(begin, end - begin));
        begin = end + 1;
    }
    std::fprintf(stderr, "xqajit: %s\n", safe.c_str());
}

std::string printable(std::string const& text) {
    std::string safe;
    for (std::size_t i = 0; i < text.size(); ++i) {
        auto const byte = static_cast<unsigned char>(text[i]);
        // In UTF-8 the controls U+0080..U+009F begin with C2.
        bool const wide = byte == 0xC2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xE0) == 0x80;
        if (byte >= 0x20 && byte != 0x7F && !wide) {
            safe += text[i];
            continue;
        }
        char escaped[8];
        std::snprintf(escaped, sizeof escaped, "\\x%02x", wide ? static_cast<unsigned char>(text[++i]) : byte);
        safe += escaped;
    }
    return safe;
}

std::string table(std::vector<std::vector<std::string>> rows) {
    for (auto& row : rows)
        for (std::string& cell : row) cell = printable(cell);
    std::vector<std::size_t> widths;
    for (auto const& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (auto const& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            text += row[i];
            if (i + 1 < row.size()) text += std::string(widths[i] - row[i].size() + 2, ' ');
        }
        text += '\n';
    }
    return text;
}

std::string human_bytes(std::uint64_t bytes) {
    constexpr char const* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
    return text;
}

}  // namespace xqajit::cli
