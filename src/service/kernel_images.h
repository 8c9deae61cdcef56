// The image of a kernel by its key: from memory, the disk store, the layers below it, the remote or the compiler, in that order.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "cache/disk_store.h"
#include "cache/layers.h"
#include "cache/registry.h"
#include "cache/remote.h"
#include "service/metrics.h"
#include "service/toolchain.h"

namespace xqajit {

struct KernelImage {
    CacheKey key;       // of the entry: with XQAJIT_COMPILER_MATCH=any the compiler may be another than the present one
    std::string image;  // cubin or PTX
    bool is_ptx = false;
    bool from_disk = false;      // or from the remote: not compiled here
    std::string metadata;        // JSON, as in the disk entry
    Layer layer = Layer::kUser;  // where an image from disk was
};

// The key of a request as things stand now, and which entries of the store may serve it.
struct ImageKey {
    CacheKey key;               // compiler: zero where no NVRTC is found
    Status compiler;            // why there is none
    bool any_compiler = false;  // entries of other compilers will do
};

// Thread-safe. One compile a key in this process; among processes that share the store one too, as far as its locks reach.
class KernelImages {
public:
    KernelImages(Settings const& settings, std::shared_ptr<cache::DiskStore> store, std::shared_ptr<cache::Layers const> layers,
                 std::shared_ptr<cache::Remote> remote, Toolchain& toolchain, Metrics& metrics);

    ImageKey key_of(CompileRequest const& request);
    ImageKey with_compiler(Digest const& body);  // of a request whose body is known
    // UNAVAILABLE where no entry and no compiler exists: names the library, where it was looked for, and the key to prewarm.
    Result<std::shared_ptr<KernelImage const>> get(CompileRequest const& request);
    // Compiles once more in place of an image from disk that the driver refused, unless another process has done so.
    Result<std::shared_ptr<KernelImage const>> replace(CompileRequest const& request,
                                                       std::shared_ptr<KernelImage const> const& refused);
    bool in_memory(ImageKey const& key) const;
    // From now on every get() and replace() that would wait for a lock or compile is INTERRUPTED, as are those that do so now: but for a
    // compile in this process, which NVRTC ends itself.
    void stop() { __atomic_store_n(&stop_, 1, __ATOMIC_RELAXED); }

    // The store, the layers and the remote; null: a miss. load() counts both, logs a hit, and copies the remote's into the store, and a
    // layer's where XQAJIT_CACHE_COPY_HITS asks for it; peek() asks no remote and leaves no trace.
    std::shared_ptr<KernelImage const> load(CompileRequest const& request, ImageKey const& key);
    std::shared_ptr<KernelImage const> peek(ImageKey const& key) const;
    // The right to compile the key among the processes that share the store. `wait`: for one that compiles it now, as long as
    // XQAJIT_LOCK_TIMEOUT says, with a warning that it waits and one if that was in vain.
    cache::KeyLock lock(CompileRequest const& request, CacheKey const& key, bool wait,
                        std::function<bool()> const& is_stopped = {});
    // load() once more, for who has asked for the lock: what another process has stored meanwhile.
    // `refused`: an image that does not count; may be null.
    std::shared_ptr<KernelImage const> published(CompileRequest const& request, ImageKey const& key, cache::KeyLock const& lock,
                                                 KernelImage const* refused = nullptr);
    // Keeps what a compile made: counted, logged in one line, stored. `stored` may be null: a launch does without the disk.
    std::shared_ptr<KernelImage const> keep(CompileRequest const& request, CacheKey const& key, CompiledImage&& compiled,
                                            Status* stored);
    // For who would have all of a list in the remote: puts there what is on this machine, unless it has it.
    void offer(KernelImage const& image);
    void count_failure() { ++metrics_.compile_failures; }

private:
    struct RegistryKey {
        CacheKey key;
        bool operator==(RegistryKey const&) const = default;
        std::uint64_t hash() const { return key.body.low ^ key.compiler.low; }
    };
    // Replaceable, unlike the registry's own values.
    struct Slot {
        std::mutex mutex;
        std::shared_ptr<KernelImage const> image;
    };
    std::shared_ptr<KernelImage const> load_exact(CacheKey const& key);
    void copy_hit(KernelImage const& image);
    Result<std::shared_ptr<KernelImage const>> compile(CompileRequest const& request, ImageKey const& key);
    // Unless another process does it meanwhile.
    Result<std::shared_ptr<KernelImage const>> compile_once(CompileRequest const& request, ImageKey const& key,
                                                            KernelImage const* refused = nullptr);
    void count_hit(CompileRequest const& request, ImageKey const& key, KernelImage const& image,
                   std::chrono::steady_clock::time_point start);

    Settings const& settings_;
    std::shared_ptr<cache::DiskStore> store_;
    std::shared_ptr<cache::Layers const> layers_;
    std::shared_ptr<cache::Remote> remote_;
    Toolchain& toolchain_;
    Metrics& metrics_;
    int stop_ = 0;  // accessed atomically
    cache::Registry<RegistryKey, Slot> slots_;
};

}  // namespace xqajit
