// The cache directory: <dir>/<2 digits of body>/<body>/<compiler>.xqa, all created 0700/0600. See FORMAT.md.
// Looking makes nothing: the directory is made by the first lock or entry.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "cache/entry.h"
#include "cache/gc.h"
#include "cache/key_lock.h"
#include "cache/totals.h"

namespace xqajit::cache {

struct StoreOrigin {
    std::string path;          // as named
    std::string origin;        // "XQAJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "argument"
    std::string warning = {};  // which variable was passed over, with its value and what is accepted; else empty
};
// Which directory the settings name; UNAVAILABLE if neither the variable nor XDG_CACHE_HOME nor HOME gives one: the message has the
// value of each. An empty one is the same as unset.
Result<StoreOrigin> default_store(std::string const& cache_dir_setting);

struct StoreState {
    std::string effective_path;  // the uid-N subdirectory where the named one is shared; empty if not usable
    bool usable = false;         // entries are read; a directory that is missing is an empty one
    bool exists = false;
    bool writable = false;  // of one that is missing: whether it can be made
    std::string reason;     // why not, why the subdirectory, or that it is missing
};

struct ListedEntry {
    CacheKey key;
    std::string path;
    std::uint64_t bytes = 0;
    Status status;         // of reading and checking it: CACHE_CORRUPT if it fails a check, UNAVAILABLE if it cannot be read
    std::string metadata;  // JSON; empty unless the status is ok
    bool is_ptx = false;
};

struct ListedFolder {
    std::string path;
    Status status;  // why nothing in it is listed: as of an entry
};

struct ListedTemporary {
    std::string path;
    std::uint64_t bytes = 0;
};

struct Listing {
    std::vector<ListedEntry> entries;          // sorted by key
    std::vector<ListedFolder> unlisted;        // folders of the cache that cannot be opened or read, or that are something else
    std::vector<ListedTemporary> temporaries;  // being written, or left by a killed writer
};

// Thread-safe. A directory that is missing, read-only, full, a file, or somebody else's makes a store that misses and says why in
// state(); never an error of a launch. The first failure to write, to read and to lock are each logged here, as one warning; a caller
// need not log again.
class DiskStore {
public:
    // max_bytes: a store that takes the entries past it removes the least recently used ones; 0: no limit.
    static std::shared_ptr<DiskStore> open(StoreOrigin const& origin, std::uint64_t max_bytes = 0);
    // A directory that is only read, as it stands: of open_layer_path().
    static std::shared_ptr<DiskStore> layer(StoreOrigin const& origin, UniqueFd directory);
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
    // Keeps entries that come together: all, or none where one is refused or cannot be written. `read` gives the entry of a key; it is
    // asked for each, in order, those too that are here already and stay. Gives how many were not. A process that is killed while the last step
    // renames them into place leaves some, each whole.
    Result<std::size_t> store_all(std::span<CacheKey const> keys, std::function<Result<Entry>(std::size_t)> const& read);
    // As store() does before its first entry, for a caller who would know before the work. UNAVAILABLE says why it is not usable.
    Status make_directory();

    // collect_garbage() here. UNAVAILABLE: the directory is not usable, or cannot be written. One that is missing is an empty one.
    Result<GcReport> collect(GcLimits const& limits) const;
    // The right to make the entry of this key, among processes; who has it looks for the entry once more. Makes the directory, as store()
    // does. Whatever state() it ends in, the caller may go on: two that make one entry make the same.
    KeyLock lock(CacheKey const& key, LockWait const& wait);

    // read_totals() and update_totals() here; of a directory that is missing "", and nothing. UNAVAILABLE: it is not usable, or cannot
    // be written.
    Result<std::string> totals() const;
    Status update_totals(ChangeTotals const& change) const;

    Listing list() const;  // checks each entry and moves none
    StoreState state() const { return root()->state; }
    StoreOrigin const& origin() const { return origin_; }
    std::uint64_t quarantined() const { return quarantined_; }  // bad entries met by load()

private:
    struct ReadEntry;
    struct Root {
        UniqueFd directory;
        StoreState state;
    };

    DiskStore(StoreOrigin origin, std::string path, Root root, std::uint64_t max_bytes);
    struct Staged;
    static Result<Staged> stage(Root const& root, Entry const& entry);
    static Status publish(Root const& root, Staged const& staged);
    static void discard(Root const& root, Staged const& staged);
    static Root open_directory(std::string const& path, bool create);
    // The directory as it stands: looked for again while it is missing, since another process may make it.
    std::shared_ptr<Root const> root() const;
    static ReadEntry read_entry(int folder, CacheKey const& key);
    static Result<UniqueFd> open_body_folder(Root const& root, Digest const& body, bool create);
    static std::string path_of(Root const& root, CacheKey const& key);
    // `keeper`: this store, which sets bad entries aside and warns, or null, which leaves them.
    std::optional<Entry> read(CacheKey const& key, DiskStore* keeper) const;
    std::optional<Entry> read_any_compiler(Digest const& body, DiskStore* keeper) const;
    static std::optional<Entry> read_from(Root const& root, int folder, CacheKey const& key, DiskStore* keeper);
    Status write(Entry const& entry, std::uint64_t& bytes);
    // write(folder) in the entry's folder, which is made; again where a collection has removed the empty folder just then.
    static Status write_in_folder(Root const& root, CacheKey const& key, std::function<Status(int)> const& write);
    static bool was_removed(Root const& root, Digest const& body, Result<UniqueFd> const& before);
    void keep_within_cap(std::uint64_t stored);
    void set_aside(Root const& root, int folder, CacheKey const& key, ReadEntry const& bad);
    static Result<std::string> move_away(Root const& root, int folder, CacheKey const& key);
    void warn_of_reading(std::string const& reason);

    StoreOrigin const origin_;
    std::string const path_;  // absolute: the host may change its working directory before the first entry is stored
    mutable std::mutex mutex_;
    mutable std::shared_ptr<Root const> root_;
    std::atomic<std::uint64_t> quarantined_{0};
    std::atomic<bool> read_warned_{false};
    std::atomic<bool> write_warned_{false};
    SizeCap cap_;
    std::atomic<bool> cap_warned_{false};
    std::atomic<bool> lock_warned_{false};
};

}  // namespace xqajit::cache
