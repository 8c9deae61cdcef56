#include "cache/disk_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "cache/directory.h"
#include "cache/layout.h"
#include "cache/metadata.h"

namespace xqajit::cache {
namespace {

using Outcome = CacheFile::Outcome;

constexpr int kQuarantinedPerKey = 100;  // bounds what a disk that damages everything can pile up
constexpr int kFolderAttempts = 64;      // each lost only to a collection that removes the empty folder just then

// What writers that were killed left in the folder. Age alone tells: a write takes milliseconds, and a writer that slept for an hour finds
// its file gone, which costs it one warning and the cache one kernel, never a wrong entry.
void remove_leftovers(int folder) {
    Result<std::vector<std::string>> const names = names_in(folder);
    if (!names.ok()) return;
    std::time_t const newest = std::time(nullptr) - kLeftoverSeconds;
    for (std::string const& name : *names) {
        struct stat file {};
        if (!name.starts_with(kTemporaryPrefix) || ::fstatat(folder, name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (S_ISREG(file.st_mode) && file.st_uid == ::geteuid() && file.st_mtime < newest) ::unlinkat(folder, name.c_str(), 0);
    }
}

bool exists_at(int folder, std::string const& name) {
    struct stat status {};
    return ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

}  // namespace

struct DiskStore::ReadEntry {
    Outcome outcome = Outcome::kMissing;
    struct stat file {};
    Status status;  // why not good
    Entry entry;
};

DiskStore::DiskStore(StoreOrigin origin, std::string path, Root root, std::uint64_t max_bytes)
    : origin_(std::move(origin)), path_(std::move(path)), root_(std::make_shared<Root const>(std::move(root))), cap_(max_bytes) {}

std::shared_ptr<DiskStore> DiskStore::open(StoreOrigin const& origin, std::uint64_t max_bytes) {
    std::error_code error;
    std::filesystem::path const absolute = std::filesystem::absolute(origin.path, error);
    std::string const path = error ? origin.path : absolute.string();
    return std::shared_ptr<DiskStore>(new DiskStore(origin, path, open_directory(path, /*create=*/false), max_bytes));
}

std::shared_ptr<DiskStore> DiskStore::layer(StoreOrigin const& origin, UniqueFd directory) {
    StoreState state{origin.path, true, true, false, fmt::format("cache directory {} is a layer: it is only read", origin.path)};
    return std::shared_ptr<DiskStore>(new DiskStore(origin, origin.path, Root{std::move(directory), std::move(state)}, 0));
}

std::shared_ptr<DiskStore> DiskStore::disabled(std::string const& reason) {
    return std::shared_ptr<DiskStore>(new DiskStore({}, {}, Root{UniqueFd(), {"", false, false, false, reason}}, 0));
}

DiskStore::Root DiskStore::open_directory(std::string const& path, bool create) {
    Result<OpenedRoot> opened = open_root(path, create);
    if (!opened.ok()) return {UniqueFd(), {"", false, false, false, opened.status().message()}};
    bool const exists = opened->directory.valid();
    return {std::move(opened->directory), {opened->path, true, exists, opened->writable, opened->reason}};
}

std::shared_ptr<DiskStore::Root const> DiskStore::root() const {
    std::lock_guard const lock(mutex_);
    if (root_->state.usable && !root_->state.exists) root_ = std::make_shared<Root const>(open_directory(path_, /*create=*/false));
    return root_;
}

Status DiskStore::make_directory() {
    std::lock_guard const lock(mutex_);
    if (root_->state.usable && !root_->state.exists) {
        Root made = open_directory(path_, /*create=*/true);
        if (!made.state.usable) return unavailable(made.state.reason);  // still missing: a later store tries again
        root_ = std::make_shared<Root const>(std::move(made));
    }
    return root_->state.usable ? Status() : unavailable(root_->state.reason);
}

std::string DiskStore::path_of(Root const& root, CacheKey const& key) {
    return fmt::format("{}/{}/{}/{}", root.state.effective_path, prefix_of(key.body), key.body.hex(), file_name(key));
}

Result<UniqueFd> DiskStore::open_body_folder(Root const& root, Digest const& body, bool create) {
    Result<UniqueFd> prefix = open_folder_at(root.directory.get(), prefix_of(body), create);
    if (!prefix.ok() || !prefix->valid()) return prefix;
    return open_folder_at(prefix->get(), body.hex(), create);
}

DiskStore::ReadEntry DiskStore::read_entry(int folder, CacheKey const& key) {
    ReadEntry read;
    CacheFile file = read_cache_file(folder, file_name(key), kMaxEntryBytes);
    read.outcome = file.outcome;
    read.file = file.facts;
    if (read.outcome != Outcome::kGood) {
        read.status = {file.status.code(), "cache entry " + file.status.message()};
        return read;
    }
    Result<Entry> entry = decode_entry(file.bytes, key);
    read.status = entry.status();
    if (entry.ok())
        read.entry = std::move(*entry);
    else
        read.outcome = Outcome::kBad;
    return read;
}

std::optional<Entry> DiskStore::read_from(Root const& root, int folder, CacheKey const& key, DiskStore* keeper) {
    ReadEntry read = read_entry(folder, key);
    if (read.outcome == Outcome::kGood) return std::move(read.entry);
    if (keeper == nullptr) return std::nullopt;
    if (read.outcome == Outcome::kUnreadable) keeper->warn_of_reading(path_of(root, key) + ": " + read.status.message());
    if (read.outcome == Outcome::kBad) keeper->set_aside(root, folder, key, read);
    return std::nullopt;
}

std::optional<Entry> DiskStore::read(CacheKey const& key, DiskStore* keeper) const {
    std::shared_ptr<Root const> const top = root();
    if (!top->directory.valid()) return std::nullopt;
    Result<UniqueFd> const folder = open_body_folder(*top, key.body, /*create=*/false);
    if (!folder.ok() && keeper != nullptr) keeper->warn_of_reading(path_of(*top, key) + ": " + folder.status().message());
    if (!folder.ok() || !folder->valid()) return std::nullopt;
    std::optional<Entry> entry = read_from(*top, folder->get(), key, keeper);
    if (entry && keeper != nullptr && top->state.writable) mark_used(folder->get(), file_name(key));
    return entry;
}

std::optional<Entry> DiskStore::read_any_compiler(Digest const& body, DiskStore* keeper) const {
    std::shared_ptr<Root const> const top = root();
    if (!top->directory.valid()) return std::nullopt;
    Result<UniqueFd> const folder = open_body_folder(*top, body, /*create=*/false);
    if (!folder.ok() && keeper != nullptr) keeper->warn_of_reading(path_of(*top, {body, {}}) + ": " + folder.status().message());
    if (!folder.ok() || !folder->valid()) return std::nullopt;

    std::optional<Entry> best;
    CompilerRank best_rank;
    Result<std::vector<std::string>> const names = names_in(folder->get());
    if (!names.ok() && keeper != nullptr) keeper->warn_of_reading(path_of(*top, {body, {}}) + ": " + names.status().message());
    if (!names.ok()) return std::nullopt;
    for (std::string const& name : *names) {
        CacheKey key{body, {}};
        if (!parse_file_name(name, key.compiler)) continue;
        std::optional<Entry> entry = read_from(*top, folder->get(), key, keeper);
        if (!entry) continue;
        CompilerRank rank = compiler_rank(entry->metadata);
        // The last resort, the compiler's digest, says nothing: it makes every process choose alike.
        if (best && (rank < best_rank || (rank == best_rank && key.compiler < best->key.compiler))) continue;
        best = std::move(entry);
        best_rank = std::move(rank);
    }
    if (best && keeper != nullptr && top->state.writable) mark_used(folder->get(), file_name(best->key));
    return best;
}

std::optional<Entry> DiskStore::load(CacheKey const& key) { return read(key, this); }
std::optional<Entry> DiskStore::load_any_compiler(Digest const& body) { return read_any_compiler(body, this); }
std::optional<Entry> DiskStore::peek(CacheKey const& key) const { return read(key, nullptr); }
std::optional<Entry> DiskStore::peek_any_compiler(Digest const& body) const { return read_any_compiler(body, nullptr); }

Status DiskStore::store(Entry const& entry) {
    std::uint64_t bytes = 0;
    Status status = write(entry, bytes);
    if (status.ok()) keep_within_cap(bytes);
    if (!status.ok() && !write_warned_.exchange(true))
        log::warning(fmt::format("a kernel was not kept on disk, nor may be later ones: {}", status.message()));
    return status;
}

Status DiskStore::write(Entry const& entry, std::uint64_t& bytes) {
    XQAJIT_RETURN_IF_ERROR(check_limits(entry));
    XQAJIT_RETURN_IF_ERROR(make_directory());
    std::shared_ptr<Root const> const top = root();
    if (!top->state.writable) return unavailable(top->state.reason);
    std::string const encoded = encode_entry(entry);
    bytes = encoded.size();
    return write_in_folder(*top, entry.key, [&](int folder) {
        remove_leftovers(folder);  // first: they may be what fills the disk
        return write_file_atomic_at(folder, file_name(entry.key), encoded);
    });
}

Status DiskStore::write_in_folder(Root const& root, CacheKey const& key, std::function<Status(int)> const& write) {
    Status status;
    for (int attempt = 0; attempt < kFolderAttempts; ++attempt) {
        Result<UniqueFd> const folder = open_body_folder(root, key.body, /*create=*/true);
        status = folder.ok() ? write(folder->get()) : folder.status();
        if (status.ok()) return status;
        if (!was_removed(root, key.body, folder)) break;
    }
    return unavailable(path_of(root, key) + ": " + status.message());
}

// Whether the folder, or one above it, was removed (and perhaps made again) since it was opened, or while it was made.
bool DiskStore::was_removed(Root const& root, Digest const& body, Result<UniqueFd> const& before) {
    Result<UniqueFd> const now = open_body_folder(root, body, /*create=*/false);
    if (!now.ok()) return false;
    if (!before.ok() || !now->valid()) return true;
    struct stat old {
    }, present{};
    if (::fstat(before->get(), &old) != 0 || ::fstat(now->get(), &present) != 0) return false;
    return old.st_nlink == 0 || old.st_ino != present.st_ino;  // a new folder may have the number of one that is gone
}

Result<GcReport> DiskStore::collect(GcLimits const& limits) const {
    std::shared_ptr<Root const> const top = root();
    if (!top->state.usable) return unavailable(top->state.reason);
    if (!top->directory.valid()) return GcReport{};
    if (!top->state.writable) return unavailable(top->state.reason);
    return collect_garbage(top->directory.get(), top->state.effective_path, limits);
}

void DiskStore::keep_within_cap(std::uint64_t stored) {
    if (!cap_.is_due(stored)) return;
    Result<GcReport> const report = collect(cap_.limits());
    std::string const why = !report.ok()             ? report.status().message()
                            : report->failed.empty() ? ""
                                                     : report->failed[0].status.message();
    if (!why.empty() && !cap_warned_.exchange(true)) log::warning(fmt::format("the cache is not kept within its size: {}", why));
    if (report.ok() && report->removed.entries.files != 0)
        log::info(fmt::format("the cache passed its size: {} entries, {} bytes, were removed", report->removed.entries.files,
                              report->removed.entries.bytes));
}

KeyLock DiskStore::lock(CacheKey const& key, LockWait const& wait) {
    // A directory that cannot be written is what store() warns of.
    if (Status status = make_directory(); !status.ok()) return KeyLock::none(KeyLock::State::kUnmade, std::move(status));
    std::shared_ptr<Root const> const top = root();
    if (!top->state.writable) return KeyLock::none(KeyLock::State::kUnmade, unavailable(top->state.reason));
    KeyLock lock = KeyLock::take(top->directory.get(), key, wait);
    if (lock.state() == KeyLock::State::kRefused && !lock_warned_.exchange(true)) {
        log::warning(fmt::format("{}: {}; processes that want one kernel may each compile it", top->state.effective_path,
                                 lock.reason().message()));
    }
    return lock;
}

Result<std::string> DiskStore::totals() const {
    std::shared_ptr<Root const> const top = root();
    if (!top->state.usable) return unavailable(top->state.reason);
    return top->directory.valid() ? read_totals(top->directory.get()) : Result<std::string>(std::string());
}

Status DiskStore::update_totals(ChangeTotals const& change) const {
    std::shared_ptr<Root const> const top = root();
    if (!top->state.usable || !top->state.writable) return unavailable(top->state.reason);
    return top->directory.valid() ? cache::update_totals(top->directory.get(), change) : Status();
}

Listing DiskStore::list() const {
    Listing listing;
    std::shared_ptr<Root const> const top = root();
    if (!top->directory.valid()) return listing;
    std::string const& path = top->state.effective_path;
    // What cannot be opened or read is listed as such: a cache of which a part is out of reach is no smaller cache.
    auto const open = [&](int directory, std::string const& name, std::string const& folder_path) {
        Result<UniqueFd> folder = open_folder_at(directory, name, /*create=*/false);
        if (!folder.ok()) listing.unlisted.push_back({folder_path, folder.status()});
        return folder.ok() ? std::move(*folder) : UniqueFd();
    };
    auto const names = [&](int directory, std::string const& folder_path) {
        Result<std::vector<std::string>> found = names_in(directory);
        if (!found.ok()) listing.unlisted.push_back({folder_path, found.status()});
        return found.ok() ? std::move(*found) : std::vector<std::string>();
    };
    for (std::string const& prefix : names(top->directory.get(), path)) {
        bool const is_prefix = is_prefix_name(prefix);
        if (!is_prefix && prefix != kQuarantine && prefix != kLockFolder) continue;
        std::string const prefix_path = path + "/" + prefix;
        UniqueFd const bodies = open(top->directory.get(), prefix, prefix_path);
        if (!bodies.valid() || !is_prefix) continue;
        for (std::string const& body_name : names(bodies.get(), prefix_path)) {
            CacheKey key;
            if (!parse_digest_name(body_name, key.body) || prefix_of(key.body) != prefix) continue;
            std::string const body_path = prefix_path + "/" + body_name;
            UniqueFd const folder = open(bodies.get(), body_name, body_path);
            if (!folder.valid()) continue;
            for (std::string const& name : names(folder.get(), body_path)) {
                if (struct stat file{};
                    name.starts_with(kTemporaryPrefix) && ::fstatat(folder.get(), name.c_str(), &file, AT_SYMLINK_NOFOLLOW) == 0) {
                    listing.temporaries.push_back({body_path + "/" + name, static_cast<std::uint64_t>(file.st_size)});
                }
                if (!parse_file_name(name, key.compiler)) continue;
                ReadEntry read = read_entry(folder.get(), key);
                if (read.outcome == Outcome::kMissing) continue;
                listing.entries.push_back({key, body_path + "/" + name, static_cast<std::uint64_t>(read.file.st_size),
                                           std::move(read.status), std::move(read.entry.metadata), read.entry.is_ptx});
            }
        }
    }
    return listing;
}

void DiskStore::set_aside(Root const& root, int folder, CacheKey const& key, ReadEntry const& bad) {
    ++quarantined_;
    // Another process that met the same bad file may have written a good one since.
    struct stat now {};
    bool const same = ::fstatat(folder, file_name(key).c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_dev == bad.file.st_dev &&
                      now.st_ino == bad.file.st_ino;
    Result<std::string> const fate = same ? move_away(root, folder, key) : Result<std::string>("replaced meanwhile");
    std::string const text = path_of(root, key) + ": " + bad.status.message() + "; ";
    if (fate.ok())
        log::warning(text + *fate);
    else
        warn_of_reading(text + fate.status().message());  // it will be met again
}

// What became of the file; UNAVAILABLE if it is still in place.
Result<std::string> DiskStore::move_away(Root const& root, int folder, CacheKey const& key) {
    if (!root.state.writable) return unavailable("left in place: " + root.state.reason);
    std::string const name = file_name(key);
    Result<UniqueFd> const quarantine = open_folder_at(root.directory.get(), kQuarantine, /*create=*/true);
    for (int counter = 0; quarantine.ok() && counter < kQuarantinedPerKey; ++counter) {
        std::string const aside = fmt::format("{}-{}-{}.bad", key.body.hex(), key.compiler.hex(), counter);
        if (exists_at(quarantine->get(), aside)) continue;
        if (::renameat(folder, name.c_str(), quarantine->get(), aside.c_str()) == 0) {
            mark_set_aside(quarantine->get(), aside);
            return fmt::format("moved to {}/{}", kQuarantine, aside);
        }
        break;
    }
    if (::unlinkat(folder, name.c_str(), 0) == 0) return std::string("removed");
    if (errno == EISDIR && ::unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0) return std::string("removed");
    return unavailable("left in place: " + errno_text(errno));
}

void DiskStore::warn_of_reading(std::string const& reason) {
    if (!read_warned_.exchange(true)) log::warning(reason);
}

}  // namespace xqajit::cache
