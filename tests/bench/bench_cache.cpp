// xqajit_bench_cache FOLDER URL DEAD_URL SILENT_URL KEY_FILE: what a hit takes in a directory of 10 000 entries and from a remote, and what a
// dead one costs. FOLDER is filled. Prints JSON, in milliseconds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cache/disk_store.h"
#include "cache/remote.h"

using namespace xqajit;
using namespace xqajit::cache;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kEntries = 10'000, kMeasured = 200;
constexpr std::size_t kImageBytes = 128u << 10, kSmallBytes = 4u << 10;

double ms_of(auto const& call) {
    auto const start = Clock::now();
    call();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void require(bool holds, char const* what) {
    if (holds) return;
    std::fprintf(stderr, "error: %s\n", what);
    std::exit(1);
}

double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

Entry entry_of(std::size_t number, std::size_t image_bytes) {
    Entry entry;
    entry.key = {digest_of(std::to_string(number)), digest_of("compiler")};
    entry.metadata = "{\"nvrtc_version\": \"13.0\"}";
    entry.image.resize(image_bytes);
    std::uint64_t state = number + 1;
    for (char& byte : entry.image) byte = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
    return entry;
}

// The first hits, each of another entry, are of the size that kernels have.
double disk_hit(std::string const& folder) {
    auto const store = DiskStore::open({folder, "argument"});
    std::vector<CacheKey> keys;
    for (std::size_t i = 0; i < kEntries; ++i) keys.push_back(entry_of(i, 1).key);
    auto const made = store->store_all(
        keys, [](std::size_t i) -> Result<Entry> { return entry_of(i, i < kMeasured ? kImageBytes : kSmallBytes); });
    require(made.ok() && *made == kEntries, "the directory is not filled");
    auto const fresh = DiskStore::open({folder, "argument"});
    std::vector<double> times;
    for (std::size_t i = 0; i < kMeasured; ++i)
        times.push_back(ms_of([&] { require(fresh->load(keys[i]).has_value(), "a miss on disk"); }));
    return median(times);
}

RemoteOptions options_of(std::string const& url, std::string const& key_file) {
    RemoteOptions options;
    options.url = url;
    options.key_file = key_file;
    options.writes = true;
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 6, "usage: xqajit_bench_cache FOLDER URL DEAD_URL SILENT_URL KEY_FILE");
    std::string const key_file = argv[5];
    double const disk = disk_hit(argv[1]);

    // Before libcurl is opened, so that the first request of the process pays for it.
    double dead_first = 0, dead_later = 0;
    {
        Remote dead(options_of(argv[3], key_file));
        dead_first = ms_of([&] { (void)dead.load(entry_of(0, 1).key); });
        dead_later = ms_of([&] { (void)dead.load(entry_of(1, 1).key); });
    }
    Remote silent(options_of(argv[4], key_file));
    double const silent_first = ms_of([&] { (void)silent.load(entry_of(0, 1).key); });
    double const silent_later = ms_of([&] { (void)silent.load(entry_of(1, 1).key); });

    Remote remote(options_of(argv[2], key_file));
    for (std::size_t i = 0; i < kMeasured; ++i) remote.store(entry_of(i, kImageBytes));
    remote.flush();
    require(remote.counts().stored == kMeasured, "the remote is not filled");
    std::vector<double> times;
    for (std::size_t i = 0; i < kMeasured; ++i)
        times.push_back(ms_of([&] { require(remote.load(entry_of(i, 1).key).has_value(), "a miss on the remote"); }));
    fmt::print(
        "{{\"schema\": \"xqajit.bench.cache/1\", \"entries\": {}, \"entry_bytes\": {}, \"disk_hit_ms\": {:.3f}, \"remote_hit_ms\": "
        "{:.3f}, "
        "\"refusing_ms\": {:.1f}, \"refusing_later_ms\": {:.3f}, \"silent_ms\": {:.1f}, \"silent_later_ms\": {:.3f}}}\n",
        kEntries, kImageBytes, disk, median(times), dead_first, dead_later, silent_first, silent_later);
    return 0;
}
