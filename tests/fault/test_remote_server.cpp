// A remote whose server is killed and started again while processes and threads use it.
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "cache/remote.h"
#include "catch.h"
#include "servers/nginx.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;
using namespace xqajit::testing;
using std::chrono::milliseconds;

namespace {

constexpr int kEntries = 12;

// Gets and puts until the file `end` is there, then until all is got: 0 if every entry that came was whole and all came at last.
int use(RemoteOptions const& options, std::string const& end) {
    Remote remote(options);
    std::atomic<int> wrong{0};
    auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    auto const work = [&](int thread) {
        for (int i = thread; !std::filesystem::exists(end); ++i) {
            remote.store(sample_entry(i % kEntries, 50'000));
            std::optional<Entry> const got = remote.load(sample_key(i % kEntries));
            if (got && !same(*got, sample_entry(i % kEntries, 50'000))) ++wrong;
        }
    };
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
    for (std::thread& thread : threads) thread.join();
    if (wrong != 0) return 1;
    for (int i = 0; i < kEntries;) {
        if (std::chrono::steady_clock::now() > deadline) return 2;
        remote.store(sample_entry(i, 50'000));
        remote.flush();
        std::optional<Entry> const got = remote.load(sample_key(i));
        if (got && !same(*got, sample_entry(i, 50'000))) return 3;
        if (got)
            ++i;
        else
            std::this_thread::sleep_for(milliseconds(2));
    }
    return remote.counts().errors == 0 ? 4 : 0;  // it was never away
}

}  // namespace

TEST_CASE("a server that is killed and started again under load gives no wrong entry, and is found again",
          "[fault][remote][J03][J05][J22][J24]") {
    if (!Nginx::is_installed()) skip_test("no nginx is installed");
    TempDirectory const temp;
    write_raw(temp.path("key"), std::string(32, 'k'));
    REQUIRE(::chmod(temp.path("key").c_str(), 0600) == 0);
    Nginx server;
    RemoteOptions options;
    options.url = server.url();
    options.writes = true;
    options.key_file = temp.path("key");
    options.timeout = milliseconds(2000);
    options.first_pause = milliseconds(5);
    if (std::string const reason = Remote(options).state().reason; reason.find("this build") == 0) skip_test(reason.c_str());
    std::vector<pid_t> children;
    for (int process = 0; process < 4; ++process) children.push_back(start_child([&] { return use(options, temp.path("end")); }));
    for (int round = 0; round < 10; ++round) {
        std::size_t const before = server.requests("GET").size();
        while (server.requests("GET").size() < before + 20) std::this_thread::sleep_for(milliseconds(2));  // it is under load
        server.kill();
        std::this_thread::sleep_for(milliseconds(10));
        server.start();
    }
    write_raw(temp.path("end"), "");
    for (pid_t const child : children) CHECK(wait_child(child) == 0);
    CHECK(server.files().size() == kEntries);
}

TEST_CASE("many processes put and get one entry at once, and each gets it whole or not at all", "[fault][remote][J01]") {
    if (!Nginx::is_installed()) skip_test("no nginx is installed");
    Nginx const server;
    RemoteOptions options;
    options.url = server.url();
    options.writes = true;
    options.allow_unsigned = true;
    options.timeout = milliseconds(20'000);
    if (std::string const reason = Remote(options).state().reason; reason.find("this build") == 0) skip_test(reason.c_str());
    std::vector<pid_t> children;
    for (int process = 0; process < 8; ++process)
        children.push_back(start_child([&] {
            Remote remote(options);
            for (int i = 0; i < 25; ++i) {
                std::optional<Entry> const got = remote.load(sample_key(1));
                if (got && !same(*got, sample_entry(1, 300'000))) return 1;
                remote.store(sample_entry(1, 300'000));
                remote.flush();
            }
            RemoteCounts const counts = remote.counts();
            return counts.refused != 0 ? 2 : counts.errors != 0 ? 3 : counts.stored == 25 ? 0 : 4;
        }));
    for (pid_t const child : children) CHECK(wait_child(child) == 0);
    CHECK(server.files().size() == 1);
}
