// The cache directory: <dir>/<2 digits of body>/<body>/<compiler>.xqa, all created 0700/0600. See FORMAT.md.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "cache/entry.h"

namespace xqajit::cache {

struct StoreOrigin {
    std::string path;    // as named
    std::string origin;  // "XQAJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "argument"
};
// Which directory the settings name; UNAVAILABLE if neither the variable nor XDG_CACHE_HOME nor HOME gives one.
Result<StoreOrigin> default_store(std::string const& cache_dir_setting);

struct StoreState {
    std::string effective_path;  // the uid-N subdirectory where the named one is shared; empty if not usable
    bool usable = false;         // entries are read
    bool writable = false;
    std::string reason;  // why not, or why the subdirectory
};

struct ListedEntry {
    CacheKey key;
    std::string path;
    std::uint64_t bytes = 0;
    Status status;         // of reading and checking it
    std::string metadata;  // JSON; empty if corrupt
    bool is_ptx = false;
};

// Thread-safe. A directory that is missing, read-only, full, a file, or somebody else's makes a store that misses and says why in
// state(); never an error of a launch. The first failure to write and the first failure to read are each logged here, as one
// warning; a caller need not log again.
class DiskStore {
public:
    static std::shared_ptr<DiskStore> open(StoreOrigin const& origin);
    // A store without a directory: always misses, with this reason in state().
    static std::shared_ptr<DiskStore> disabled(std::string const& reason);

    // nullopt: a miss. A bad entry is moved to quarantine/, counted, logged once, and is a miss.
    std::optional<Entry> load(CacheKey const& key);
    // The best entry of any compiler for this body (highest nvrtc version, then latest created, both from metadata).
    std::optional<Entry> load_any_compiler(Digest const& body);
    // The same entries, and no trace: a bad one stays where it is, and nothing is counted or logged.
    std::optional<Entry> peek(CacheKey const& key) const;
    std::optional<Entry> peek_any_compiler(Digest const& body) const;
    // Replaces an entry of the same key. UNAVAILABLE if it could not be written, INVALID_ARGUMENT if it breaks a limit of the format.
    Status store(Entry const& entry);

    std::vector<ListedEntry> list() const;  // sorted by key; checks each and moves none
    StoreState const& state() const { return state_; }
    StoreOrigin const& origin() const { return origin_; }
    std::uint64_t quarantined() const { return quarantined_; }  // bad entries met by load()

private:
    struct ReadEntry;

    DiskStore() = default;
    static ReadEntry read_entry(int folder, CacheKey const& key);
    Result<UniqueFd> open_body_folder(Digest const& body, bool create) const;
    std::string path_of(CacheKey const& key) const;
    // `keeper`: this store, which sets bad entries aside and warns, or null, which leaves them.
    std::optional<Entry> read(CacheKey const& key, DiskStore* keeper) const;
    std::optional<Entry> read_any_compiler(Digest const& body, DiskStore* keeper) const;
    std::optional<Entry> read_from(int folder, CacheKey const& key, DiskStore* keeper) const;
    Status write(Entry const& entry);
    void set_aside(int folder, CacheKey const& key, ReadEntry const& bad);
    Result<std::string> move_away(int folder, CacheKey const& key) const;
    void warn_of_reading(std::string const& reason);

    StoreOrigin origin_;
    StoreState state_;
    UniqueFd directory_;
    std::atomic<std::uint64_t> quarantined_{0};
    std::atomic<bool> read_warned_{false};
    std::atomic<bool> write_warned_{false};
};

}  // namespace xqajit::cache
