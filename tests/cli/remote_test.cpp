// The command with a remote cache: a real nginx.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "catch.h"
#include "servers/nginx.h"
#include "shell.h"

namespace xqajit {

using nlohmann::json;
using namespace testing;

namespace {

void require_nginx() {
    if (!Nginx::is_installed()) skip_test("no nginx is installed");
}

// Machines with one key file and one server.
struct Machines {
    Machines() {
        require_nginx();
        server.emplace();
        std::string const key = builder.write("key", std::string(32, 'k'));
        REQUIRE(::chmod(key.c_str(), 0600) == 0);
        for (Shell* shell : {&builder, &target}) {
            shell->set("XQAJIT_CACHE_KEY_FILE", key);
            shell->set("XQAJIT_REMOTE_CACHE", server->url());
            shell->set("XQAJIT_REMOTE_TIMEOUT", "20000");
            shell->set("no_proxy", "*");
            shell->write("list.json", kList);
        }
        builder.set("XQAJIT_REMOTE_CACHE_WRITE", "1");
        std::string const reason = builder.document({"cache", "path"})["remote"]["reason"];
        if (contains(reason, "this build")) skip_test(reason.c_str());
    }
    static json prewarm(Shell const& shell, std::vector<std::string> const& more = {}) {
        std::vector<std::string> arguments = {"prewarm", "--shapes", shell.folder() + "/list.json", "--arch", "sm_90a"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return shell.document(arguments);
    }
    // A prewarm of a machine without a cache, of which this many of the two kernels are there without a compile: what it says on standard
    // error.
    std::string check_hits(int hits) const {
        std::filesystem::remove_all(target.folder() + "/cache");
        ProcessResult const result =
            target.run({"prewarm", "--shapes", target.folder() + "/list.json", "--arch", "sm_90a", "--json"});
        INFO(result.err);
        CHECK(result.code == 0);
        json const summary = json::parse(result.out)["summary"];
        CHECK(summary["hits"] == hits);
        CHECK(summary["compiled"] == 2 - hits);
        CHECK(summary["failed"] == 0);
        return result.err;
    }
    Shell builder, target;
    std::optional<Nginx> server;
};

std::string bytes_of(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void rewrite(std::string const& path, std::string const& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

}  // namespace

TEST_CASE("what one machine prewarms the next has from the server, and the shares of several are a whole", "[cli][remote][P07]") {
    Machines machines;
    Shell other;
    for (char const* name : {"XQAJIT_CACHE_KEY_FILE", "XQAJIT_REMOTE_CACHE"})
        other.set(name, name == std::string("XQAJIT_REMOTE_CACHE") ? machines.server->url() : machines.builder.folder() + "/key");
    other.set("XQAJIT_REMOTE_CACHE_WRITE", "1");
    other.set("no_proxy", "*");
    other.write("list.json", kList);
    json const one = Machines::prewarm(machines.builder, {"--shard", "0/2"}), two = Machines::prewarm(other, {"--shard", "1/2"});
    CHECK(one["remote"]["stored"].get<int>() + two["remote"]["stored"].get<int>() == 2);
    CHECK(machines.server->files().size() == 2);
    CHECK(machines.server->requests("PUT").size() == 2);
    machines.check_hits(2);
    CHECK(machines.target.document({"cache", "verify"})["summary"]["ok"] == 2);
    json const metrics = machines.target.document({"cache", "stats"})["metrics"];
    CHECK(metrics["hits"]["remote"] == 2);
    CHECK(metrics["compiles"] == 0);
    CHECK(contains(machines.target.run({"cache", "stats", "--prometheus"}).out, "xqajit_hits_total{layer=\"remote\"} 2\n"));
    // It was only read, and serves while it is away.
    CHECK(machines.server->requests("PUT").size() == 2);
    machines.server->kill();
    CHECK(Machines::prewarm(machines.target)["summary"]["hits"] == 2);
}

TEST_CASE("what is damaged, forged or unsigned on the server is compiled, with one warning", "[cli][remote][J07][J27]") {
    Machines machines;
    Machines::prewarm(machines.builder);
    std::vector<std::string> const files = machines.server->files();
    REQUIRE(files.size() == 2);
    std::string const good = bytes_of(files[0]);
    auto const changed = [&](std::size_t byte) {
        std::string bytes = good;
        bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
        return bytes;
    };
    std::string unsigned_bytes = good.substr(0, 12) + std::string(4, '\0') + good.substr(48);
    for (std::string const& bytes : {changed(good.size() - 20), changed(30), good.substr(0, good.size() / 2), std::string(),
                                     good + "x", unsigned_bytes, bytes_of(files[1]), std::string(70u << 20, 'x')}) {
        rewrite(files[0], bytes);
        std::string const text = machines.check_hits(1);
        INFO(text);
        std::size_t const told = text.find("an entry of the remote cache was refused");
        CHECK(told != std::string::npos);
        CHECK(text.find("an entry of the remote cache was refused", told + 1) == std::string::npos);
    }
    rewrite(files[0], unsigned_bytes);
    machines.target.set("XQAJIT_REMOTE_ALLOW_UNSIGNED", "1");
    machines.check_hits(2);
    rewrite(files[0], changed(30));
    machines.check_hits(1);  // a signature that is there and wrong
    machines.target.unset("XQAJIT_CACHE_KEY_FILE");
    machines.check_hits(2);
    machines.target.unset("XQAJIT_REMOTE_ALLOW_UNSIGNED");
    CHECK(contains(machines.check_hits(0), "is left out: XQAJIT_CACHE_KEY_FILE is not set"));
}

TEST_CASE("a server that refuses, fails, redirects or is gone costs compiles and one warning", "[cli][remote]") {
    Machines machines;
    Machines::prewarm(machines.builder);
    struct Row {
        char const* place;
        char const* warning;
    };
    for (Row const& row : {Row{"forbidden", "answered 403 to GET"}, Row{"broken", "answered 500 to GET"},
                           Row{"moved", "answered 302 to GET"}, Row{"private", "answered 401 to GET"}, Row{"nothing", ""}}) {
        INFO(row.place);
        machines.target.set("XQAJIT_REMOTE_CACHE", machines.server->url(row.place));
        CHECK(contains(machines.check_hits(0), row.warning));
    }
    machines.target.set("XQAJIT_REMOTE_CACHE", machines.server->url());
    machines.server->kill();
    CHECK(contains(machines.check_hits(0), "does without its server for now"));
    machines.server->start();
    machines.check_hits(2);
}

TEST_CASE("a server that takes no PUT is read, and the prewarm tells what it did not store", "[cli][remote]") {
    Machines machines;
    machines.builder.set("XQAJIT_REMOTE_CACHE", machines.server->url("read-only"));
    json const report = Machines::prewarm(machines.builder);
    CHECK(report["summary"]["compiled"] == 2);
    CHECK(report["remote"] == json({{"stored", 0}, {"not_stored", 2}}));
    CHECK(machines.server->files().empty());
    ProcessResult const again =
        machines.builder.run({"prewarm", "--shapes", machines.builder.folder() + "/list.json", "--arch", "sm_90a"});
    CHECK(again.code == 0);
    CHECK(contains(again.err, "answered 403 to a PUT"));
    CHECK(contains(again.out, "remote: 0 stored, 2 not stored"));
}

TEST_CASE("credentials open the server, and are nowhere in what is printed", "[cli][remote]") {
    Machines machines;
    for (Shell* shell : {&machines.builder, &machines.target}) {
        shell->set("XQAJIT_REMOTE_CACHE", machines.server->url_of_private());
        shell->set("XQAJIT_LOG_LEVEL", "trace");
    }
    std::string said;
    auto const say = [&](Shell const& shell, std::vector<std::string> const& arguments) {
        ProcessResult const result = shell.run(arguments);
        said += result.out + result.err;
    };
    std::vector<std::string> const prewarm = {"prewarm", "--shapes", machines.target.folder() + "/list.json", "--arch", "sm_90a"};
    say(machines.builder, prewarm);
    CHECK(machines.server->files().size() == 2);
    machines.check_hits(2);
    for (std::vector<std::string> const& arguments :
         {prewarm, {"doctor"}, {"doctor", "--json"}, {"cache", "path"}, {"cache", "path", "--json"}, {"cache", "stats"}})
        say(machines.target, arguments);
    machines.server->kill();
    for (std::vector<std::string> const& arguments : {std::vector<std::string>{"doctor"}, {"cache", "path"}})
        say(machines.target, arguments);
    std::filesystem::remove_all(machines.target.folder() + "/cache");
    say(machines.target, prewarm);
    machines.target.set("XQAJIT_REMOTE_CACHE", "htp://ann:pa%2Fss%40word@host");
    say(machines.target, {"doctor"});
    CHECK(contains(said, "***@"));
    CHECK(contains(said, "does without its server"));
    for (char const* secret : {"pa/ss", "pa%2Fss", "ss@word", "ss%40word", "ann:", "YW5u"}) CHECK_FALSE(contains(said, secret));
}

TEST_CASE("cache path and doctor show the remote and its state", "[cli][remote][J12]") {
    Machines machines;
    auto const shown = [](Shell const& shell, std::string const& text) {
        for (std::vector<std::string> const& arguments : {std::vector<std::string>{"cache", "path"}, {"doctor"}}) {
            std::string const out = shell.run(arguments).out;
            INFO(out);
            CHECK(contains(out, text));
        }
    };
    std::string const url = machines.server->url() + " (XQAJIT_REMOTE_CACHE), ";
    shown(machines.builder, url + "reachable, read and written, key file present");
    shown(machines.target, url + "reachable, only read, key file present");
    machines.target.unset("XQAJIT_CACHE_KEY_FILE");
    shown(machines.target, url + "not usable, only read, key file unset: XQAJIT_CACHE_KEY_FILE is not set");
    machines.target.set("XQAJIT_REMOTE_ALLOW_UNSIGNED", "1");
    shown(machines.target, url + "reachable, only read, key file unset, unsigned entries are taken");
    machines.server->kill();
    shown(machines.target, url + "not reachable, only read, key file unset, unsigned entries are taken: ");
    CHECK_FALSE(std::filesystem::exists(machines.target.folder() + "/cache"));
}

TEST_CASE("where libcurl is missing, or no libcurl, everything else works, with one message that names it", "[cli][remote]") {
    Machines machines;
    Machines::prewarm(machines.builder);
    machines.target.write("libcurl.so.4", "no library");
    machines.target.set("LD_LIBRARY_PATH", machines.target.folder() + ":" + FAKE_CUDA);
    CHECK(contains(machines.check_hits(0), "is left out: a remote needs libcurl.so.4: "));
    CHECK(machines.target.document({"cache", "path"})["remote"]["usable"] == false);
}

}  // namespace xqajit
