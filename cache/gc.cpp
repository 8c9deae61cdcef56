#include "cache/gc.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <set>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "cache/directory.h"
#include "cache/layout.h"

namespace xqajit::cache {
namespace {

constexpr std::time_t kMarkSeconds = 3600;  // a hit writes an entry's time no more often
constexpr std::string_view kSetAsideSuffix = ".bad";

bool is_ours(struct stat const& file) { return S_ISREG(file.st_mode) && file.st_uid == ::geteuid(); }

// What failed its checks may have been a link or a pipe.
bool is_ours_set_aside(struct stat const& file) { return !S_ISDIR(file.st_mode) && file.st_uid == ::geteuid(); }

// Which folder: the quarantine has no body.
struct Place {
    std::string prefix;
    std::string body;
    auto operator<=>(Place const&) const = default;
};

// A file as it was listed.
struct Item {
    Place place;
    std::string name;
    dev_t device = 0;
    ino_t inode = 0;
    timespec used{};
    std::uint64_t bytes = 0;
};

bool is_unchanged(struct stat const& now, Item const& item) {
    return now.st_dev == item.device && now.st_ino == item.inode && now.st_mtim.tv_sec == item.used.tv_sec &&
           now.st_mtim.tv_nsec == item.used.tv_nsec;
}

enum class Fate {
    kRemoved,
    kGone,     // another process removed it
    kRenewed,  // used or published since it was listed
    kFailed,   // errno says why
};

Fate remove_now(int folder, std::string const& name) {
    if (::unlinkat(folder, name.c_str(), 0) == 0) return Fate::kRemoved;
    return errno == ENOENT ? Fate::kGone : Fate::kFailed;
}

// Between a look at the name and its unlink another process may publish under it. So what stands there is first moved out of reach, looked
// at again, and put back if it is not what was listed; that may replace one that is newer still, with an image of the same key.
Fate remove_unchanged(int folder, Item const& item) {
    static std::atomic<std::uint32_t> counter{0};
    struct stat now {};
    if (::fstatat(folder, item.name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? Fate::kGone : Fate::kFailed;
    if (!is_unchanged(now, item)) return Fate::kRenewed;
    auto const ticks = std::chrono::steady_clock::now().time_since_epoch().count();  // a process elsewhere may have our number
    std::string const aside = fmt::format("{}gc-{}-{}-{}", kTemporaryPrefix, ::getpid(), ticks, counter++);
    if (::renameat(folder, item.name.c_str(), folder, aside.c_str()) != 0)
        return errno == ENOENT ? Fate::kGone : remove_now(folder, item.name);  // a full disk may have no room for another name
    if (::fstatat(folder, aside.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 && !is_unchanged(now, item))
        return ::renameat(folder, aside.c_str(), folder, item.name.c_str()) == 0 ? Fate::kRenewed : Fate::kFailed;
    return remove_now(folder, aside);
}

class Collector {
public:
    Collector(int directory, std::string const& path, GcLimits const& limits)
        : directory_(directory), path_(path), limits_(limits), now_(std::time(nullptr)) {}

    GcReport run() {
        walk();
        by_age(temporaries_, kLeftoverSeconds, report_.removed.temporaries, report_.kept.temporaries);
        by_age(quarantined_, kLeftoverSeconds, report_.removed.quarantined, report_.kept.quarantined);
        entries_by_limits();
        if (!limits_.dry_run) remove_empty_folders();
        return std::move(report_);
    }

private:
    std::string path_of(Place const& place) const {
        return path_ + "/" + place.prefix + (place.body.empty() ? "" : "/" + place.body);
    }

    void failed(std::string path, Status status) { report_.failed.push_back({std::move(path), std::move(status)}); }

    UniqueFd open(int directory, std::string const& name, std::string const& folder_path) {
        Result<UniqueFd> folder = open_folder_at(directory, name, /*create=*/false);
        if (!folder.ok()) failed(folder_path, folder.status());
        return folder.ok() ? std::move(*folder) : UniqueFd();
    }

    UniqueFd open(Place const& place) {
        UniqueFd prefix = open(directory_, place.prefix, path_ + "/" + place.prefix);
        return place.body.empty() || !prefix.valid() ? std::move(prefix) : open(prefix.get(), place.body, path_of(place));
    }

    std::vector<std::string> names(int directory, std::string const& folder_path) {
        Result<std::vector<std::string>> found = names_in(directory);
        if (!found.ok()) failed(folder_path, found.status());
        return found.ok() ? std::move(*found) : std::vector<std::string>();
    }

    void walk() {
        for (std::string const& prefix : names(directory_, path_)) {
            if (!is_prefix_name(prefix) && prefix != kQuarantine) continue;
            UniqueFd const folder = open(directory_, prefix, path_ + "/" + prefix);
            if (!folder.valid()) continue;
            if (prefix == kQuarantine) {
                walk_files(folder.get(), {prefix, ""});
                continue;
            }
            for (std::string const& name : names(folder.get(), path_ + "/" + prefix)) {
                Digest body;
                if (!parse_digest_name(name, body) || prefix_of(body) != prefix) continue;
                Place const place{prefix, name};
                UniqueFd const bodies = open(folder.get(), name, path_of(place));
                if (bodies.valid()) walk_files(bodies.get(), place);
            }
        }
    }

    void walk_files(int folder, Place const& place) {
        std::vector<std::string> const found = names(folder, path_of(place));
        if (found.empty()) emptied_.insert(place);
        for (std::string const& name : found) {
            Digest compiler;
            bool const is_temporary = !place.body.empty() && name.starts_with(kTemporaryPrefix);
            bool const is_quarantined = place.body.empty() && name.ends_with(kSetAsideSuffix);
            bool const is_entry = !place.body.empty() && parse_file_name(name, compiler);
            struct stat file {};
            if (!is_temporary && !is_quarantined && !is_entry) continue;
            if (::fstatat(folder, name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) {
                if (errno != ENOENT) failed(path_of(place) + "/" + name, unavailable(errno_text(errno)));
                continue;
            }
            auto const bytes = static_cast<std::uint64_t>(file.st_size);
            if (is_quarantined ? !is_ours_set_aside(file) : !is_ours(file)) {
                add(report_.foreign, bytes);
                continue;
            }
            (is_entry       ? entries_
             : is_temporary ? temporaries_
                            : quarantined_)
                .push_back({place, name, file.st_dev, file.st_ino, file.st_mtim, bytes});
        }
    }

    // Whole seconds; a time in the future counts as now.
    std::uint64_t age_of(Item const& item) const {
        return static_cast<std::uint64_t>(std::max<std::time_t>(now_ - std::max<std::time_t>(item.used.tv_sec, 0), 0));
    }

    static void add(GcCount& count, std::uint64_t bytes) {
        ++count.files;
        count.bytes += bytes;
    }

    // Whether it is there no more.
    bool remove(Item const& item, GcCount& removed, GcCount& kept) {
        Fate fate = Fate::kRemoved;
        if (!limits_.dry_run) {
            std::size_t const failures = report_.failed.size();
            UniqueFd const folder = open(item.place);
            if (folder.valid()) {
                fate = remove_unchanged(folder.get(), item);
                int const error = errno;
                if (fate == Fate::kFailed)
                    failed(path_of(item.place) + "/" + item.name, unavailable("cannot be removed: " + errno_text(error)));
                emptied_.insert(item.place);
            } else {
                fate = report_.failed.size() == failures ? Fate::kGone : Fate::kFailed;
            }
        }
        if (fate == Fate::kRemoved) add(removed, item.bytes);
        if (fate == Fate::kRenewed || fate == Fate::kFailed) add(kept, item.bytes);
        return fate == Fate::kRemoved || fate == Fate::kGone;
    }

    void by_age(std::vector<Item> const& items, std::uint64_t max_age, GcCount& removed, GcCount& kept) {
        for (Item const& item : items) {
            if (age_of(item) > max_age)
                remove(item, removed, kept);
            else
                add(kept, item.bytes);
        }
    }

    void entries_by_limits() {
        // The least recently used first; the names make the order of equal times the same everywhere.
        auto const order = [&](Item const& item) {
            bool const is_future = item.used.tv_sec > now_;
            return std::tuple(is_future ? now_ : item.used.tv_sec, is_future ? 0 : item.used.tv_nsec, item.place, item.name);
        };
        std::sort(entries_.begin(), entries_.end(),
                  [&](Item const& left, Item const& right) { return order(left) < order(right); });
        std::uint64_t total = 0;
        for (Item const& item : entries_) total += item.bytes;
        auto item = entries_.begin();
        for (; item != entries_.end() && is_too_old(*item); ++item)
            if (remove(*item, report_.removed.entries, report_.kept.entries)) total -= item->bytes;
        bool const is_over = limits_.max_bytes && total > *limits_.max_bytes;
        std::uint64_t const target = is_over ? limits_.down_to_bytes.value_or(*limits_.max_bytes) : total;
        for (; item != entries_.end(); ++item) {
            if (total <= target)
                add(report_.kept.entries, item->bytes);
            else if (remove(*item, report_.removed.entries, report_.kept.entries))
                total -= item->bytes;
        }
    }

    bool is_too_old(Item const& item) const { return limits_.max_age_seconds && age_of(item) > *limits_.max_age_seconds; }

    // What is not empty refuses; a store that has the folder open notices that it is gone, and makes it again.
    void remove_empty_folders() {
        std::set<std::string> prefixes;
        for (Place const& place : emptied_) {
            prefixes.insert(place.prefix);
            if (place.body.empty()) continue;
            Result<UniqueFd> const prefix = open_folder_at(directory_, place.prefix, /*create=*/false);
            if (prefix.ok() && prefix->valid()) ::unlinkat(prefix->get(), place.body.c_str(), AT_REMOVEDIR);
        }
        for (std::string const& prefix : prefixes) ::unlinkat(directory_, prefix.c_str(), AT_REMOVEDIR);
    }

    int const directory_;
    std::string const& path_;
    GcLimits const& limits_;
    std::time_t const now_;
    GcReport report_;
    std::vector<Item> entries_, temporaries_, quarantined_;
    std::set<Place> emptied_;  // folders that are or may have become empty
};

void set_time_to_now(int folder, std::string const& name) {
    timespec times[2] = {};
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_nsec = UTIME_NOW;  // by the clock of the file system's host, as that of a new file
    (void)::utimensat(folder, name.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

}  // namespace

GcReport collect_garbage(int directory, std::string const& path, GcLimits const& limits) {
    return Collector(directory, path, limits).run();
}

void mark_used(int folder, std::string const& name) {
    struct stat file {};
    if (::fstatat(folder, name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0 || !is_ours(file)) return;
    std::time_t const now = std::time(nullptr);
    if (file.st_mtime < now - kMarkSeconds || file.st_mtime > now + kMarkSeconds) set_time_to_now(folder, name);
}

void mark_set_aside(int quarantine, std::string const& name) { set_time_to_now(quarantine, name); }

bool SizeCap::is_due(std::uint64_t stored_bytes) {
    if (max_bytes_ == 0) return false;
    std::uint64_t const stored = stored_ += stored_bytes;
    if (!is_first_.exchange(false) && stored < max_bytes_ / 10) return false;
    stored_ = 0;
    return true;
}

GcLimits SizeCap::limits() const { return {max_bytes_, max_bytes_ / 5 * 4, {}, false}; }

}  // namespace xqajit::cache
