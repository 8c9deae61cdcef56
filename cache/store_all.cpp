// Entries that come together: staged beside their places, synced at once, then renamed.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cache/disk_store.h"
#include "cache/layout.h"

namespace xqajit::cache {

struct DiskStore::Staged {
    CacheKey key;
    std::string temporary;
    struct stat file {};
    std::uint64_t bytes = 0;
};

Result<DiskStore::Staged> DiskStore::stage(Root const& root, Entry const& entry) {
    XQAJIT_RETURN_IF_ERROR(check_limits(entry));
    std::string const encoded = encode_entry(entry);
    Staged staged{entry.key, "", {}, encoded.size()};
    XQAJIT_RETURN_IF_ERROR(write_in_folder(root, entry.key, [&](int folder) -> Status {
        Result<std::string> temporary = write_temporary_at(folder, file_name(entry.key), encoded, Sync::kLater);
        if (!temporary.ok()) return temporary.status();
        staged.temporary = std::move(*temporary);
        bool const is_there = ::fstatat(folder, staged.temporary.c_str(), &staged.file, AT_SYMLINK_NOFOLLOW) == 0;
        return is_there ? Status() : unavailable(errno_text(errno));
    }));
    return staged;
}

Status DiskStore::publish(Root const& root, Staged const& staged) {
    Result<UniqueFd> const folder = open_body_folder(root, staged.key.body, /*create=*/false);
    Status status = folder.ok() && !folder->valid() ? unavailable("its folder is gone") : folder.status();
    if (status.ok()) status = rename_temporary_at(folder->get(), staged.temporary, file_name(staged.key));
    return status.ok() ? status : unavailable(path_of(root, staged.key) + ": " + status.message());
}

// The temporary file, and the entry if it is still the staged one: what another process has put there since stays.
void DiskStore::discard(Root const& root, Staged const& staged) {
    Result<UniqueFd> const folder = open_body_folder(root, staged.key.body, /*create=*/false);
    if (!folder.ok() || !folder->valid()) return;
    for (std::string const& name : {staged.temporary, file_name(staged.key)}) {
        struct stat now {};
        if (::fstatat(folder->get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (now.st_dev == staged.file.st_dev && now.st_ino == staged.file.st_ino) ::unlinkat(folder->get(), name.c_str(), 0);
    }
}

Result<std::size_t> DiskStore::store_all(std::span<CacheKey const> keys, std::function<Result<Entry>(std::size_t)> const& read) {
    XQAJIT_RETURN_IF_ERROR(make_directory());
    std::shared_ptr<Root const> const top = root();
    if (!top->state.writable) return unavailable(top->state.reason);
    std::vector<Staged> staged;
    std::uint64_t bytes = 0;
    Status status;
    for (std::size_t i = 0; i < keys.size() && status.ok(); ++i) {
        Result<Entry> const entry = read(i);
        status = entry.status();
        if (!status.ok() || load(keys[i])) continue;  // a damaged one is out of the way after load()
        Result<Staged> one = stage(*top, *entry);
        status = one.status();
        if (!one.ok()) break;
        bytes += one->bytes;
        staged.push_back(std::move(*one));
    }
    // Once for all of them: a sync a file would take most of the time.
    if (status.ok() && !staged.empty() && ::syncfs(top->directory.get()) != 0)
        status = unavailable(fmt::format("{}: sync: {}", top->state.effective_path, errno_text(errno)));
    for (std::size_t i = 0; i < staged.size() && status.ok(); ++i) status = publish(*top, staged[i]);
    if (!status.ok()) {
        for (Staged const& one : staged) discard(*top, one);
        return status;
    }
    if (!staged.empty()) keep_within_cap(bytes);
    return staged.size();
}

}  // namespace xqajit::cache
