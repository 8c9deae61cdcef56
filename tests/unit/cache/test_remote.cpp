#include "cache/remote.h"

#include <sys/stat.h>

#include <thread>

#include "cache/remote_object.h"
#include "catch.h"
#include "servers/nginx.h"
#include "servers/scripted_server.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;
using namespace xqajit::testing;
using std::chrono::milliseconds;

namespace {

// Signed, read and written, and patient: no test waits for a clock that it need not wait for.
struct Signing {
    Signing() {
        write_raw(key_file, std::string(32, 'k'));
        REQUIRE(::chmod(key_file.c_str(), 0600) == 0);
        RemoteOptions options = of("http://127.0.0.1:1");
        Remote probe(options);
        if (std::string const reason = probe.state().reason; reason.find("this build") == 0) skip_test(reason.c_str());
    }
    RemoteOptions of(std::string const& url) const {
        RemoteOptions options;
        options.url = url;
        options.writes = true;
        options.key_file = key_file;
        options.timeout = milliseconds(20'000);
        return options;
    }
    std::string signed_bytes(Entry const& entry) const {
        return encode_remote(encode_entry(entry), *SigningKey::read(key_file)->sign(encode_entry(entry)));
    }
    TempDirectory temp;
    std::string key_file = temp.path("key");
};

std::string path_of(CacheKey const& key) { return "/cache/" + remote_name(key); }

bool is_in(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("an entry that one remote puts another gets, byte for byte", "[cache][remote][P07]") {
    Signing const at;
    Warnings const warnings;
    KeepingServer const server;
    Remote writer(at.of(server.url()));
    for (int i = 0; i < 20; ++i) writer.store(sample_entry(i, 1 + 5000u * static_cast<unsigned>(i)));
    writer.flush();
    CHECK(writer.counts().stored == 20);
    CHECK(server.files().size() == 20);
    RemoteOptions options = at.of(server.url() + "/");
    options.writes = false;
    Remote reader(options);
    for (int i = 0; i < 20; ++i) {
        std::optional<Entry> const got = reader.load(sample_key(i));
        REQUIRE(got);
        CHECK(same(*got, sample_entry(i, 1 + 5000u * static_cast<unsigned>(i))));
    }
    CHECK_FALSE(reader.load(sample_key(20)));
    CHECK(reader.counts().errors == 0);
    CHECK(warnings.count() == 0);
}

TEST_CASE("a remote that is only read puts nothing, and one without a name asks nobody", "[cache][remote]") {
    Signing const at;
    KeepingServer const server;
    RemoteOptions options = at.of(server.url());
    options.writes = false;
    Remote reader(options);
    reader.store(sample_entry(1));
    reader.offer(sample_entry(2));
    reader.flush();
    reader.close();
    CHECK(server.requests() == 0);
    Remote none(RemoteOptions{});
    CHECK_FALSE(none.load(sample_key(1)));
    none.store(sample_entry(1));
    none.flush();
    CHECK_FALSE(none.is_named());
}

TEST_CASE("what is offered is put where it is missing alone", "[cache][remote]") {
    Signing const at;
    KeepingServer const server;
    for (int run = 0; run < 2; ++run) {
        Remote remote(at.of(server.url()));
        remote.offer(sample_entry(1));
        remote.flush();
        CHECK(remote.counts().stored == (run == 0 ? 1 : 0));
        CHECK(remote.counts().not_stored == 0);
        CHECK(server.requests("PUT") == 1);
    }
    Remote remote(at.of(server.url()));
    remote.store(sample_entry(1));
    remote.close();
    CHECK(server.requests("PUT") == 2);
}

TEST_CASE("an entry that is forged, damaged, unsigned or another's is a miss, counted, and told of once",
          "[cache][remote][J07][J27]") {
    Signing const at;
    Entry const entry = sample_entry(1);
    std::string const good = at.signed_bytes(entry);
    auto const changed = [&](std::size_t byte) {
        std::string bytes = good;
        bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
        return bytes;
    };
    for (std::string const& bytes :
         {changed(20), changed(100), changed(good.size() - 1), good.substr(0, good.size() - 1), good + "x", std::string(),
          std::string("<html>"), encode_remote(encode_entry(entry), ""), at.signed_bytes(sample_entry(2))}) {
        Warnings const warnings;
        KeepingServer server;
        server.put(path_of(entry.key), bytes);
        Remote remote(at.of(server.url()));
        for (int i = 0; i < 3; ++i) CHECK_FALSE(remote.load(entry.key));
        CHECK(remote.counts().refused == 3);
        CHECK(remote.counts().errors == 0);
        REQUIRE(warnings.count() == 1);
        CHECK(is_in(warnings.texts()[0], "was refused: " + server.url()));
        // The one that is compiled takes its place.
        remote.store(entry);
        remote.flush();
        CHECK(remote.load(entry.key));
    }
}

TEST_CASE("unsigned entries are taken by the setting's name alone, and a wrong signature never", "[cache][remote]") {
    Signing const at;
    Entry const entry = sample_entry(1);
    KeepingServer server;
    server.put(path_of(entry.key), encode_remote(encode_entry(entry), ""));
    RemoteOptions options = at.of(server.url());
    CHECK_FALSE(Remote(options).load(entry.key));
    options.allow_unsigned = true;
    CHECK(Remote(options).load(entry.key));
    options.key_file = "";
    CHECK(Remote(options).load(entry.key));
    server.put(path_of(entry.key), at.signed_bytes(entry));
    CHECK(Remote(options).load(entry.key));
    Remote unsigned_writer(options);
    unsigned_writer.store(entry);
    unsigned_writer.close();
    CHECK(server.files()[path_of(entry.key)] == encode_remote(encode_entry(entry), ""));
    server.put(path_of(entry.key), encode_remote(encode_entry(entry), std::string(32, 's')));
    options.key_file = at.key_file;
    CHECK_FALSE(Remote(options).load(entry.key));
}

TEST_CASE("without what verifies entries a remote is left out, with one warning that says why", "[cache][remote]") {
    Signing const at;
    KeepingServer const server;
    write_raw(at.temp.path("open"), std::string(32, 'k'));
    REQUIRE(::chmod(at.temp.path("open").c_str(), 0644) == 0);
    struct Row {
        std::string key_file, reason;
    };
    for (Row const& row : {Row{"", "XQAJIT_REMOTE_ALLOW_UNSIGNED=1"}, Row{at.temp.path("missing"), "ENOENT"},
                           Row{at.temp.path("open"), "nobody but its owner may read it"}}) {
        Warnings const warnings;
        RemoteOptions options = at.of(server.url());
        options.key_file = row.key_file;
        options.allow_unsigned = !row.key_file.empty();  // a key file that is named is never done without
        Remote remote(options);
        for (int i = 0; i < 2; ++i) CHECK_FALSE(remote.load(sample_key(i)));
        remote.store(sample_entry(1));
        remote.flush();
        REQUIRE(warnings.count() == 1);
        CHECK(is_in(warnings.texts()[0], "is left out"));
        CHECK(is_in(warnings.texts()[0], row.reason));
        CHECK(is_in(remote.state().reason, row.reason));
        CHECK_FALSE(remote.state().usable);
    }
    CHECK(server.requests() == 0);
}

TEST_CASE("404 and 410 are misses, and what else is no entry is an error, told of once, and no redirect is followed",
          "[cache][remote]") {
    Signing const at;
    Entry const entry = sample_entry(1);
    for (int const status : {404, 410, 201, 204, 206, 301, 302, 307, 400, 401, 403, 405}) {
        INFO(status);
        Warnings const warnings;
        KeepingServer target;
        target.put(path_of(entry.key), at.signed_bytes(entry));
        ScriptedServer const server([&](Request const& request, ScriptedServer::Connection const& client) {
            client.send("HTTP/1.1 " + std::to_string(status) + " -\r\nContent-Length: 0\r\nConnection: close\r\nLocation: " +
                        target.url() + request.path.substr(6) + "\r\n\r\n");
        });
        Remote remote(at.of(server.url()));
        for (int i = 0; i < 3; ++i) CHECK_FALSE(remote.load(entry.key));
        bool const is_miss = status == 404 || status == 410;
        CHECK(remote.counts().errors == (is_miss ? 0 : 3));
        CHECK(warnings.count() == (is_miss ? 0 : 1));
        CHECK(server.requests() == 3);
        CHECK(target.requests() == 0);
    }
}

TEST_CASE("a server in trouble, gone, silent or cutting its answers is asked once and then let be", "[cache][remote][J03][J22]") {
    Signing const at;
    using Client = ScriptedServer::Connection;
    auto const answering = [](std::string const& bytes) {
        return [bytes](Request const&, Client const& client) { client.send(bytes); };
    };
    struct Row {
        char const* what;
        ScriptedServer::Script script;
    };
    for (Row const& row :
         {Row{"500", answering(http_answer(500))}, Row{"429", answering(http_answer(429))}, Row{"503", answering(http_answer(503))},
          Row{"nothing", answering("")}, Row{"cut", answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")},
          Row{"garbage", answering("garbage\r\n\r\n")},
          Row{"silent", [](Request const&, Client const& client) { client.wait_for_client(); }}}) {
        INFO(row.what);
        Warnings const warnings;
        ScriptedServer const server(row.script);
        RemoteOptions options = at.of(server.url());
        options.timeout = milliseconds(200);
        options.first_pause = std::chrono::hours(1);
        Remote remote(options);
        CHECK_FALSE(remote.load(sample_key(0)));
        std::size_t const asked = server.requests();
        CHECK(asked >= 1);
        CHECK(asked <= 3);
        for (int i = 1; i < 10; ++i) {
            CHECK_FALSE(remote.load(sample_key(i)));
            remote.store(sample_entry(i));
        }
        remote.flush();
        CHECK(server.requests() == asked);
        CHECK(remote.counts().errors == 1);
        CHECK(remote.counts().not_stored == 9);
        REQUIRE(warnings.count() == 1);
        CHECK(is_in(warnings.texts()[0], "does without its server for now"));
    }
}

TEST_CASE("a server that comes back is found again, by no caller's waiting", "[cache][remote]") {
    Signing const at;
    KeepingServer server;
    RemoteOptions options = at.of(server.url());
    options.first_pause = milliseconds(1);
    Remote remote(options);
    remote.store(sample_entry(1));
    remote.flush();
    server.answer_all(500);
    CHECK_FALSE(remote.load(sample_key(1)));
    server.answer_all(0);
    auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!remote.load(sample_key(1)) && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    CHECK(remote.load(sample_key(1)));
    CHECK(server.requests("HEAD") >= 1);
}

TEST_CASE("a server that takes no PUT is asked for one, and read on, and one that takes not this one is asked again",
          "[cache][remote]") {
    Signing const at;
    for (int const status : {401, 403, 405, 413, 409}) {
        INFO(status);
        Warnings const warnings;
        KeepingServer kept;
        kept.put(path_of(sample_key(9)), at.signed_bytes(sample_entry(9)));
        ScriptedServer const server([&](Request const& request, ScriptedServer::Connection const& client) {
            client.send(request.method == "PUT" ? http_answer(status) : http_answer(200, kept.files()[request.path]));
        });
        Remote remote(at.of(server.url()));
        for (int i = 0; i < 3; ++i) {
            remote.store(sample_entry(i));
            remote.flush();
        }
        bool const is_final = status != 413 && status != 409;
        CHECK(server.requests("PUT") == (is_final ? 1 : 3));
        CHECK(remote.counts().stored == 0);
        CHECK(warnings.count() == 1);
        CHECK(remote.load(sample_key(9)));
    }
}

TEST_CASE("credentials go to the server and into no message", "[cache][remote]") {
    Signing const at;
    std::mutex mutex;
    std::string head;
    ScriptedServer const server([&](Request const& request, ScriptedServer::Connection const& client) {
        std::lock_guard const lock(mutex);
        head = request.head;
        client.send(http_answer(401));
    });
    std::string const secret = "http://ann:s3cret@";
    for (std::string const& url :
         {secret + server.url().substr(7), secret + "127.0.0.1:" + std::to_string(free_port()), secret + "no_such_host.invalid"}) {
        Warnings const warnings;
        Remote remote(at.of(url));
        CHECK_FALSE(remote.load(sample_key(1)));
        remote.store(sample_entry(1));
        remote.flush();
        RemoteState const state = remote.state();
        std::vector<std::string> texts = warnings.texts();
        CHECK(!texts.empty());
        texts.push_back(state.url);
        texts.push_back(state.reason);
        for (std::string const& text : texts) {
            CHECK_FALSE(is_in(text, "s3cret"));
            CHECK_FALSE(is_in(text, "ann"));
        }
    }
    CHECK(is_in(head, "Authorization: Basic YW5uOnMzY3JldA==\r\n"));
}

TEST_CASE("a remote shows whether its server answers, and asks nothing of it but that", "[cache][remote]") {
    Signing const at;
    KeepingServer server;
    Remote remote(at.of(server.url()));
    RemoteState const state = remote.state();
    CHECK(state.usable);
    CHECK(state.reachable);
    CHECK(state.writable);
    CHECK(state.has_key);
    CHECK(state.reason.empty());
    CHECK(server.requests() == server.requests("HEAD"));
    server.answer_all(403);
    CHECK(remote.state().reachable);
    CHECK(is_in(remote.state().reason, "403"));
    server.answer_all(500);
    CHECK_FALSE(remote.state().reachable);
    Remote gone(at.of("http://127.0.0.1:" + std::to_string(free_port())));
    CHECK_FALSE(gone.state().reachable);
    CHECK_FALSE(gone.state().reason.empty());
}

TEST_CASE("who ends while its server is silent ends, and what was put before is there", "[cache][remote]") {
    Signing const at;
    ScriptedServer const silent([](Request const&, ScriptedServer::Connection const& client) { client.wait_for_client(); });
    RemoteOptions options = at.of(silent.url());
    {
        Remote remote(options);
        for (int i = 0; i < 5; ++i) remote.store(sample_entry(i));
        remote.close();
        CHECK(remote.counts().not_stored == 5);
        remote.store(sample_entry(6));  // too late, and no harm
        remote.flush();
    }
    KeepingServer const server;
    {
        Remote remote(at.of(server.url()));
        for (int i = 0; i < 5; ++i) remote.store(sample_entry(i));
    }
    CHECK(server.files().size() == 5);
}

TEST_CASE("threads of one remote get, put and lose the server together", "[cache][remote][J24]") {
    Signing const at;
    KeepingServer server;
    RemoteOptions options = at.of(server.url());
    options.first_pause = milliseconds(1);
    Remote remote(options);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; ++thread)
        threads.emplace_back([&, thread] {
            for (int i = 0; i < 20; ++i) {
                if (thread == 0) server.answer_all(i % 4 == 0 ? 500 : 0);
                remote.store(sample_entry(i));
                std::optional<Entry> const got = remote.load(sample_key(i));
                if (got && !same(*got, sample_entry(i))) ++wrong;
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    remote.close();
    CHECK(remote.counts().stored + remote.counts().not_stored == 160);
}
