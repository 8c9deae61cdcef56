#include "jit/elf_build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "base/file.h"

namespace xqajit {

namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "xqajit runs on x86-64 and aarch64"
#endif
static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kMaxHeaders = 1024;    // section or program headers; real libraries have about 30
constexpr std::size_t kMaxNoteBytes = 4096;  // of one note section; a build-id takes 36
constexpr std::size_t kMaxIdBytes = 64;

// False at the end of the file too.
bool read_exactly(int fd, std::uint64_t offset, void* bytes, std::size_t count) {
    auto* out = static_cast<char*>(bytes);
    while (count > 0) {
        ssize_t const got = pread(fd, out, count, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        out += got;
        offset += static_cast<std::uint64_t>(got);
        count -= static_cast<std::size_t>(got);
    }
    return true;
}

template <class Header> std::vector<Header> read_headers(int fd, std::uint64_t offset, std::size_t count, std::size_t entry_size) {
    if (entry_size != sizeof(Header) || count > kMaxHeaders || offset > INT64_MAX / 2) return {};
    std::vector<Header> headers(count);
    if (!read_exactly(fd, offset, headers.data(), count * sizeof(Header))) return {};
    return headers;
}

// Notes are padded to 4 bytes, also where patchelf has written an alignment of 8 into the section.
std::string id_in_notes(std::string_view notes) {
    Elf64_Nhdr note;
    while (notes.size() >= sizeof note) {
        std::memcpy(&note, notes.data(), sizeof note);
        notes.remove_prefix(sizeof note);
        std::uint64_t const name_bytes = (std::uint64_t{note.n_namesz} + 3) / 4 * 4;
        if (name_bytes > notes.size() || note.n_descsz > notes.size() - name_bytes) return {};
        if (note.n_type == NT_GNU_BUILD_ID && notes.starts_with(std::string_view("GNU\0", 4)) && note.n_namesz == 4)
            return std::string(notes.substr(name_bytes, std::min<std::size_t>(note.n_descsz, kMaxIdBytes)));
        std::uint64_t const whole = name_bytes + (std::uint64_t{note.n_descsz} + 3) / 4 * 4;
        notes.remove_prefix(std::min<std::uint64_t>(whole, notes.size()));
    }
    return {};
}

std::string id_at(int fd, std::uint64_t offset, std::uint64_t size) {
    if (offset > INT64_MAX / 2 || size > kMaxNoteBytes) return {};
    std::string notes(size, '\0');
    return read_exactly(fd, offset, notes.data(), notes.size()) ? id_in_notes(notes) : std::string();
}

}  // namespace

Result<std::string> elf_build_id(std::string const& path) {
    UniqueFd const file = above_standard(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) return unavailable(path + ": " + errno_text(errno));
    Elf64_Ehdr header;
    if (!read_exactly(file.get(), 0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return unavailable(path + " is not an ELF file");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_DYN ||
        header.e_machine != kMachine)
        return unavailable(path + " is not a 64-bit shared library for this machine");

    // Sections first: pip's libraries went through patchelf, which moves the note and leaves the program header on the old place.
    for (auto const& section : read_headers<Elf64_Shdr>(file.get(), header.e_shoff, header.e_shnum, header.e_shentsize)) {
        if (section.sh_type != SHT_NOTE) continue;
        if (std::string id = id_at(file.get(), section.sh_offset, section.sh_size); !id.empty()) return id;
    }
    for (auto const& segment : read_headers<Elf64_Phdr>(file.get(), header.e_phoff, header.e_phnum, header.e_phentsize)) {
        if (segment.p_type != PT_NOTE) continue;
        if (std::string id = id_at(file.get(), segment.p_offset, segment.p_filesz); !id.empty()) return id;
    }
    return std::string();
}

}  // namespace xqajit
