// What the cache's tests share: a folder of their own, entries to fill it with, the warnings of a case, and children.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cache/disk_store.h"

namespace xqajit::cache::test {

// Mode 0755, so that a child of another user can get through it; removed with all that is in it.
class TempDirectory {
public:
    TempDirectory();
    ~TempDirectory();
    TempDirectory(TempDirectory const&) = delete;
    TempDirectory& operator=(TempDirectory const&) = delete;
    std::string path(std::string const& below = {}) const;

private:
    std::filesystem::path path_;
};

// Warnings and errors logged while it lives.
class Warnings {
public:
    Warnings();
    ~Warnings();
    Warnings(Warnings const&) = delete;
    Warnings& operator=(Warnings const&) = delete;
    std::vector<std::string> texts() const;
    std::size_t count() const { return texts().size(); }
};

// Entries of different numbers differ in key, metadata and image.
CacheKey sample_key(int number, int compiler = 0);
Entry sample_entry(int number, std::size_t image_bytes = 1000, int compiler = 0);
bool same(Entry const& left, Entry const& right);

std::shared_ptr<DiskStore> open_store(std::string const& path);
std::string file_of(DiskStore const& store, CacheKey const& key);
void write_raw(std::string const& path, std::string const& bytes);
std::string read_raw(std::string const& path);
void make_old(std::string const& path, long seconds);  // its times, or a link's own; nothing where it is gone
unsigned mode_of(std::string const& path);             // the permission bits, of a link itself

// Starts `body` in a child process; it exits with body's value, 99 if it throws.
pid_t start_child(std::function<int()> const& body);
// Exit status of the child, or 1000 + the signal that ended it.
int wait_child(pid_t child);
int in_child(std::function<int()> const& body);

// A user that permission bits bind, unlike root: uid 65533 where the tests run as root, else who runs them.
void give_to_ordinary_user(std::string const& path);  // the path itself, not what is below
int as_ordinary_user(std::function<int()> const& body);

}  // namespace xqajit::cache::test
