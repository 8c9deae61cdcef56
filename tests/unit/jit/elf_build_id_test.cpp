#include "jit/elf_build_id.h"

#include <elf.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>

#include "support.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

template <class T> void put(std::string& bytes, std::size_t offset, T const& value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
}

std::string note(std::uint32_t type, std::string const& owner, std::string const& value) {
    Elf64_Nhdr const header{static_cast<Elf64_Word>(owner.size()), static_cast<Elf64_Word>(value.size()), type};
    std::string bytes(sizeof header, '\0');
    put(bytes, 0, header);
    for (std::string part : {owner, value}) bytes += part.append((4 - part.size() % 4) % 4, '\0');
    return bytes;
}

constexpr std::size_t kNotesAt = 512;

// A library with one section header and one program header, for notes.
struct Image {
    Elf64_Ehdr header{};
    Elf64_Shdr section{};
    Elf64_Phdr segment{};
    std::string notes;

    explicit Image(std::string some_notes) : notes(std::move(some_notes)) {
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_ident[EI_DATA] = ELFDATA2LSB;
        header.e_type = ET_DYN;
#if defined(__x86_64__)
        header.e_machine = EM_X86_64;
#else
        header.e_machine = EM_AARCH64;
#endif
        header.e_shoff = 128;
        header.e_shnum = 1;
        header.e_shentsize = sizeof section;
        header.e_phoff = 256;
        header.e_phnum = 1;
        header.e_phentsize = sizeof segment;
        section.sh_type = SHT_NOTE;
        section.sh_offset = segment.p_offset = kNotesAt;
        section.sh_size = segment.p_filesz = notes.size();
        segment.p_type = PT_NOTE;
    }
    std::string bytes() const {
        std::string all(kNotesAt, '\0');
        put(all, 0, header);
        put(all, 128, section);
        put(all, 256, segment);
        return all + notes;
    }
};

std::string const kGnu("GNU\0", 4);
std::string const kId = "0123456789abcdefghij";

}  // namespace

TEST_CASE("the build-id is found in a section or else in a segment, behind other notes", "[jit]") {
    TemporaryFolder folder;
    std::string const notes = note(1, kGnu, "abi") + note(NT_GNU_BUILD_ID, "Go\0", "x") + note(NT_GNU_BUILD_ID, kGnu, kId);
    Image both(notes), section_only(notes), segment_only(notes), stale_segment(notes);
    section_only.header.e_phnum = 0;
    segment_only.header.e_shnum = 0;
    stale_segment.segment.p_offset = 0;  // as patchelf leaves it in pip's libraries
    for (Image const* image : {&both, &section_only, &segment_only, &stale_segment}) {
        auto const id = elf_build_id(folder.write("lib.so", image->bytes()));
        REQUIRE(id.ok());
        CHECK(*id == kId);
    }
}

TEST_CASE("a library whose headers lie has no build-id and does no harm", "[jit]") {
    TemporaryFolder folder;
    std::string const good = note(NT_GNU_BUILD_ID, kGnu, kId);
    std::string cut_name = good, cut_value = good;
    put(cut_name, 0, std::uint32_t{0xffffffff});
    put(cut_value, 4, std::uint32_t{0xfffffff0});
    std::vector<std::function<void(Image&)>> const lies = {
        [](Image& image) { image.notes.clear(); },
        [&](Image& image) { image.notes = cut_name; },
        [&](Image& image) { image.notes = cut_value; },
        [](Image& image) { image.notes.resize(20); },
        [](Image& image) { image.section.sh_offset = image.segment.p_offset = ~0ull; },
        [](Image& image) { image.section.sh_offset = image.segment.p_offset = INT64_MAX; },
        [](Image& image) { image.section.sh_size = image.segment.p_filesz = ~0ull; },
        [](Image& image) { image.header.e_shoff = image.header.e_phoff = ~0ull; },
        [](Image& image) { image.header.e_shnum = image.header.e_phnum = 0xffff; },
        [](Image& image) { image.header.e_shentsize = image.header.e_phentsize = 1; },
    };
    for (std::size_t i = 0; i < lies.size(); ++i) {
        INFO("lie " << i);
        Image image(good);
        lies[i](image);
        auto const id = elf_build_id(folder.write("lib.so", image.bytes()));
        REQUIRE(id.ok());
        CHECK(id->empty());
    }
}

TEST_CASE("what is no 64-bit shared library of this machine is refused by name", "[jit]") {
    TemporaryFolder folder;
    Image executable(""), other_machine(""), small(""), big_endian("");
    executable.header.e_type = ET_EXEC;
    other_machine.header.e_machine = EM_SPARCV9;
    small.header.e_ident[EI_CLASS] = ELFCLASS32;
    big_endian.header.e_ident[EI_DATA] = ELFDATA2MSB;
    for (std::string const& bytes : {std::string(),
                                     std::string("\x7f"
                                                 "ELF"),
                                     std::string("INPUT(libnvrtc.so.13)\n" + std::string(100, ' ')), executable.bytes(),
                                     other_machine.bytes(), small.bytes(), big_endian.bytes()}) {
        auto const id = elf_build_id(folder.write("odd.so", bytes));
        REQUIRE(!id.ok());
        CHECK(id.status().code() == XQAJIT_UNAVAILABLE);
        CHECK(contains(id.status().message(), "odd.so"));
    }
    std::string const fifo = folder.path() + "/fifo";
    REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
    for (std::string const& path : {folder.path() + "/none.so", folder.path(), fifo}) CHECK(!elf_build_id(path).ok());
}
