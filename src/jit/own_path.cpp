#include "jit/own_path.h"

#include <link.h>
#include <stdlib.h>

#include <cstdint>
#include <memory>

namespace xqajit {

namespace {

struct Search {
    std::uintptr_t address;
    std::string name;
};

int visit(dl_phdr_info* object, std::size_t, void* data) {
    auto& search = *static_cast<Search*>(data);
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        auto const& segment = object->dlpi_phdr[i];
        std::uintptr_t const begin = object->dlpi_addr + segment.p_vaddr;
        if (segment.p_type != PT_LOAD || search.address < begin || search.address - begin >= segment.p_memsz) continue;
        search.name = object->dlpi_name;
        return 1;
    }
    return 0;
}

}  // namespace

std::string own_directory() {
    // Not dladdr: for an executable it answers argv[0], which need not be a path.
    Search search{reinterpret_cast<std::uintptr_t>(&own_directory), {}};
    dl_iterate_phdr(visit, &search);
    std::string const path = search.name.empty() ? "/proc/self/exe" : search.name;
    std::unique_ptr<char, void (*)(void*)> const resolved(realpath(path.c_str(), nullptr), free);
    if (!resolved) return {};
    std::string const whole = resolved.get();
    return whole.substr(0, whole.rfind('/'));
}

}  // namespace xqajit
