#include <glob.h>
#include <link.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/split.h"
#include "jit/elf_build_id.h"
#include "jit/nvrtc_library.h"
#include "jit/own_path.h"

namespace xqajit {

namespace {

constexpr char const* kFileNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
constexpr std::uint64_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxConfigDepth = 4;

#if defined(__aarch64__)
constexpr char const* kStandardDirectories[] = {
    "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
constexpr char const* kToolkitFolders[] = {"/lib64", "/lib", "/targets/sbsa-linux/lib"};
#else
constexpr char const* kStandardDirectories[] = {
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
constexpr char const* kToolkitFolders[] = {"/lib64", "/lib", "/targets/x86_64-linux/lib"};
#endif

std::string environment(char const* name) {
    char const* const value = getenv(name);
    return value ? value : "";
}

std::vector<std::string> expand(std::string const& pattern) {
    glob_t found{};
    std::vector<std::string> paths;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    return paths;
}

std::string resolve(std::string const& path) {
    std::unique_ptr<char, void (*)(void*)> const resolved(realpath(path.c_str(), nullptr), free);
    return resolved ? resolved.get() : "";
}

// The dynamic loader's own list, so that a library it would find is found without asking it to load one.
void add_loader_config(std::string const& path, int depth, std::vector<std::string>& directories) {
    auto const text = read_file(path, kMaxConfigBytes);
    if (!text.ok()) return;
    for (std::string line : split(*text, "\n")) {
        line.erase(std::min(line.find('#'), line.size()));
        line.erase(line.find_last_not_of(" \t\r") + 1);
        line.erase(0, line.find_first_not_of(" \t"));
        if (line.starts_with("include ") || line.starts_with("include\t")) {
            std::string pattern = line.substr(line.find_first_not_of(" \t", 7));
            if (!pattern.starts_with('/')) pattern = "/etc/" + pattern;
            if (depth < kMaxConfigDepth)
                for (auto const& each : expand(pattern)) add_loader_config(each, depth + 1, directories);
        } else if (line.starts_with('/')) {
            directories.push_back(line);
        }
    }
}

int add_if_nvrtc(dl_phdr_info* object, std::size_t, void* data) {
    std::string_view const path = object->dlpi_name;
    std::size_t const slash = path.rfind('/');
    if (slash != std::string_view::npos && path.substr(slash + 1).starts_with("libnvrtc.so"))
        static_cast<std::vector<std::string>*>(data)->emplace_back(path.substr(0, slash));
    return 0;
}

std::vector<std::string> loader_directories() {
    std::vector<std::string> directories = split(environment("LD_LIBRARY_PATH"), ":");
    add_loader_config("/etc/ld.so.conf", 0, directories);
    directories.insert(directories.end(), std::begin(kStandardDirectories), std::end(kStandardDirectories));
    dl_iterate_phdr(add_if_nvrtc, &directories);  // one that the host program has loaded from elsewhere
    return directories;
}

std::vector<std::string> toolkit_directories() {
    std::vector<std::string> directories;
    for (std::string const& home : {environment("CUDA_HOME"), environment("CUDA_PATH"), std::string("/usr/local/cuda")})
        for (char const* folder : kToolkitFolders)
            if (!home.empty()) directories.push_back(home + folder);
    return directories;
}

// nvidia/*/lib below every site-packages of the active environment, of the one this library is installed in, and of the user.
std::vector<std::string> wheel_directories() {
    std::vector<std::string> directories;
    auto const add = [&](std::string const& packages) {
        auto const found = expand(packages + "/nvidia/*/lib");
        directories.insert(directories.end(), found.begin(), found.end());
        if (found.empty()) directories.push_back(packages + "/nvidia/*/lib");  // so that the error names the place
    };
    std::string const own = own_directory();
    if (auto const at = own.find("/site-packages/"); at != std::string::npos) add(own.substr(0, at + 14));
    for (char const* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
        if (std::string const prefix = environment(variable); !prefix.empty()) {
            add(prefix + "/lib/python3*/site-packages");
            directories.push_back(prefix + "/lib");
        }
    if (std::string const home = environment("HOME"); !home.empty()) add(home + "/.local/lib/python3*/site-packages");
    add("/usr/local/lib/python3*/*-packages");
    return directories;
}

// Notes what it looked at, and why a file that is there was passed over.
Result<NvrtcIdentity> search_directory(std::string const& directory, std::string const& origin,
                                       std::vector<std::string>& looked_at) {
    looked_at.push_back(directory);
    for (char const* name : kFileNames) {
        std::string const file = directory + "/" + name;
        struct stat facts {};
        if (stat(file.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
        auto identity = identify_nvrtc(file, origin);
        if (identity.ok()) return identity;
        looked_at.push_back("(" + identity.status().message() + ")");
    }
    return unavailable("no NVRTC in " + directory);
}

Result<NvrtcIdentity> not_found(std::vector<std::string> const& looked_at, std::string const& advice) {
    std::string places;
    for (auto const& place : looked_at) places += (places.empty() ? "" : ", ") + place;
    return unavailable("NVRTC not found: no libnvrtc.so.13, libnvrtc.so.12 or libnvrtc.so in " + places + "; " + advice);
}

}  // namespace

Result<NvrtcIdentity> identify_nvrtc(std::string const& file, std::string const& origin) {
    auto const id = elf_build_id(file);
    if (!id.ok()) return id.status();
    NvrtcIdentity identity{resolve(file), {}, origin};
    TaggedHash hash;
    if (!id->empty()) {
        hash.add("build-id", *id);
    } else {
        struct stat facts {};
        stat(file.c_str(), &facts);
        hash.add("name", identity.path.substr(identity.path.rfind('/') + 1));
        hash.add("size", std::to_string(facts.st_size));
    }
    identity.build = hash.digest();
    return identity;
}

Result<NvrtcIdentity> find_nvrtc(Settings const& settings) {
    std::vector<std::string> looked_at;
    auto const& setting = settings.get(SettingId::kNvrtcPath);
    if (setting.is_set && !setting.text.empty()) {
        struct stat facts {};
        if (stat(setting.text.c_str(), &facts) == 0 && !S_ISDIR(facts.st_mode))
            return identify_nvrtc(setting.text, "XQAJIT_NVRTC_PATH");
        auto identity = search_directory(setting.text, "XQAJIT_NVRTC_PATH", looked_at);
        return identity.ok() ? identity
                             : not_found(looked_at, "that is what XQAJIT_NVRTC_PATH names, and nothing else is searched");
    }
    struct Group {
        char const* origin;
        std::vector<std::string> (*directories)();
    };
    for (Group const& group : {Group{"loader path", loader_directories}, Group{"CUDA_HOME", toolkit_directories},
                               Group{"python wheel", wheel_directories}}) {
        for (auto const& directory : group.directories()) {
            if (std::find(looked_at.begin(), looked_at.end(), directory) != looked_at.end()) continue;
            auto identity = search_directory(directory, group.origin, looked_at);
            if (identity.ok()) return identity;
        }
    }
    return not_found(looked_at, "install nvidia-cuda-nvrtc with pip or a CUDA toolkit, or set XQAJIT_NVRTC_PATH to the library");
}

}  // namespace xqajit
