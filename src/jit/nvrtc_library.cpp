#include "jit/nvrtc_library.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "jit/nvrtc_functions.h"

namespace xqajit {
namespace {

// Which build the loader gives for this path. Once it has loaded one it gives that one, whatever the file holds by now, so what
// counts is what the file held then. Called after dlopen: a file that is replaced at that moment is taken for the new one, and refused.
Result<Digest> loaded_build(std::string const& path) {
    static std::mutex mutex;
    static std::map<std::string, Digest> builds;
    std::lock_guard const lock(mutex);
    if (auto const known = builds.find(path); known != builds.end()) return known->second;
    Result<NvrtcIdentity> const identity = identify_nvrtc(path, "");
    if (!identity.ok()) return identity.status();
    return builds[path] = identity->build;
}

}  // namespace

NvrtcLibrary::NvrtcLibrary() : functions_(std::make_unique<Functions>()) {}
NvrtcLibrary::~NvrtcLibrary() = default;

std::string NvrtcLibrary::version() const { return std::to_string(major_) + "." + std::to_string(minor_); }

Result<std::shared_ptr<NvrtcLibrary const>> NvrtcLibrary::open(NvrtcIdentity const& identity) {
    // NODELETE: NVRTC keeps threads and exit handlers of its own, which an unload would pull the code from under.
    void* const handle = dlopen(identity.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) return unavailable("NVRTC could not be loaded: " + std::string(dlerror()));

    std::shared_ptr<NvrtcLibrary> library(new NvrtcLibrary);
    Functions& functions = *library->functions_;
    char const* missing = nullptr;
    auto const find = [&](auto& function, char const* name) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
        if (!function && !missing) missing = name;
    };
    auto const failed = [&](std::string const& why) { return unavailable("NVRTC at " + identity.path + " " + why); };

    // A key tells the compiler's build: an image of another one must not be kept under it.
    Result<Digest> const build = loaded_build(identity.path);
    if (!build.ok()) return build.status();
    if (*build != identity.build)
        return failed("has changed under the process (build " + identity.build.hex().substr(0, 12) + " was found, " +
                      build->hex().substr(0, 12) + " is loaded): a restart takes the new one");

    find(functions.version, "nvrtcVersion");
    if (missing) return failed("has no function nvrtcVersion");
    if (functions.version(&library->major_, &library->minor_) != NVRTC_SUCCESS) return failed("does not tell its version");
    if (!library->at_least(12, 4)) return failed("is version " + library->version() + ", too old: 12.4 or later is needed");

    // NVRTC opens its second half by name when it first compiles, and that of some Python wheels looks on the loader's path alone:
    // once opened from NVRTC's own folder it is found there. Where it is missing, NVRTC's own error says so.
    std::string const folder = identity.path.substr(0, identity.path.rfind('/') + 1);
    dlopen((folder + "libnvrtc-builtins.so." + library->version()).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    find(functions.get_num_supported_archs, "nvrtcGetNumSupportedArchs");
    find(functions.get_supported_archs, "nvrtcGetSupportedArchs");
    find(functions.get_error_string, "nvrtcGetErrorString");
    find(functions.create_program, "nvrtcCreateProgram");
    find(functions.destroy_program, "nvrtcDestroyProgram");
    find(functions.compile_program, "nvrtcCompileProgram");
    find(functions.get_program_log_size, "nvrtcGetProgramLogSize");
    find(functions.get_program_log, "nvrtcGetProgramLog");
    find(functions.get_cubin_size, "nvrtcGetCUBINSize");
    find(functions.get_cubin, "nvrtcGetCUBIN");
    find(functions.get_ptx_size, "nvrtcGetPTXSize");
    find(functions.get_ptx, "nvrtcGetPTX");
    if (missing) return failed("has no function " + std::string(missing));

    int count = 0;
    if (functions.get_num_supported_archs(&count) != NVRTC_SUCCESS || count < 0 || count > 4096)
        return failed("does not tell the architectures it knows");
    library->archs_.resize(static_cast<std::size_t>(count));
    if (count > 0 && functions.get_supported_archs(library->archs_.data()) != NVRTC_SUCCESS)
        return failed("does not tell the architectures it knows");
    return std::shared_ptr<NvrtcLibrary const>(library);
}

}  // namespace xqajit
