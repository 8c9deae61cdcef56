// What a server may do to who asks it: each is one request that ends, within its limits.
#include "cache/http.h"

#include <signal.h>

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

using Client = ScriptedServer::Connection;

std::shared_ptr<HttpClient> client_of(std::string const& url,
                                      HttpLimits limits = {milliseconds(10'000), milliseconds(20'000), 1000}) {
    Result<std::shared_ptr<HttpClient>> client = HttpClient::open(*Url::parse(url), limits);
    if (!client.ok()) skip_test(client.status().message().c_str());
    return *client;
}

Result<HttpAnswer> get(ScriptedServer const& server, HttpLimits limits = {milliseconds(10'000), milliseconds(20'000), 1000}) {
    return client_of(server.url(), limits)->request(HttpMethod::kGet, "x");
}

}  // namespace

TEST_CASE("an answer is its status, and of 200 its body", "[cache][http]") {
    for (int const status : {200, 204, 206, 301, 302, 307, 401, 403, 404, 410, 429, 500}) {
        ScriptedServer const server([&](Request const&, Client const& client) {
            std::string const body = status == 204 ? "" : "body";
            client.send("HTTP/1.1 " + std::to_string(status) + " -\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body);
        });
        Result<HttpAnswer> const answer = get(server);
        INFO(status << " " << answer.status().message());
        REQUIRE(answer.ok());
        CHECK(answer->status == status);
        CHECK(answer->body == (status == 200 ? "body" : ""));
        CHECK(server.requests() == 1);  // no redirect is followed
    }
}

TEST_CASE("a request names no more than it must, and its credentials in one header", "[cache][http]") {
    std::mutex mutex;
    std::vector<Request> met;
    ScriptedServer const server([&](Request const& request, Client const& client) {
        std::lock_guard const lock(mutex);
        met.push_back(request);
        client.send(http_answer(201));
    });
    auto const client = client_of("http://ann:pa%2Fss@" + server.url().substr(7));
    std::string const body("a\0b", 3);
    REQUIRE(client->request(HttpMethod::kPut, "name", body).ok());
    REQUIRE(met.size() == 1);
    CHECK(met[0].method == "PUT");
    CHECK(met[0].path == "/cache/name");
    CHECK(met[0].body == body);
    CHECK(met[0].head.find("Authorization: Basic YW5uOnBhL3Nz\r\n") != std::string::npos);
    for (char const* header : {"Accept-Encoding", "Expect", "form-urlencoded", "ann", "pa/ss"})
        CHECK(met[0].head.find(header) == std::string::npos);
}

TEST_CASE("what is longer than its limit is cut off and refused, by its length or as it comes", "[cache][http]") {
    std::string const chunk = "400\r\n" + std::string(1024, 'x') + "\r\n";
    struct Row {
        char const* what;
        ScriptedServer::Script script;
    };
    for (Row const& row :
         {Row{"a length", [](Request const&, Client const& client) { client.send(http_answer(200, std::string(1001, 'x'))); }},
          Row{"a length that is never sent",
              [](Request const&, Client const& client) {
                  client.send("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n");
              }},
          Row{"chunks without end",
              [&](Request const&, Client const& client) {
                  client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                  while (client.send(chunk)) {
                  }
              }},
          Row{"a body without end", [&](Request const&, Client const& client) {
                  client.send("HTTP/1.1 200 OK\r\n\r\n");
                  while (client.send(chunk)) {
                  }
              }}}) {
        INFO(row.what);
        ScriptedServer const server(row.script);
        Result<HttpAnswer> const answer = get(server);
        CHECK(answer.status().code() == XQAJIT_CACHE_CORRUPT);
        CHECK(answer.status().message().find("more than 1000 bytes") != std::string::npos);
    }
    ScriptedServer const fits([](Request const&, Client const& client) { client.send(http_answer(200, std::string(1000, 'x'))); });
    CHECK(get(fits)->body.size() == 1000);
}

TEST_CASE("an error's page without end is left, and its status is the answer, but a head without end is none", "[cache][http]") {
    ScriptedServer const page([](Request const&, Client const& client) {
        client.send("HTTP/1.1 404 -\r\n\r\n");
        while (client.send(std::string(10'000, 'x'))) {
        }
    });
    Result<HttpAnswer> const answer = get(page);
    REQUIRE(answer.ok());
    CHECK(answer->status == 404);
    ScriptedServer const head([](Request const&, Client const& client) {
        client.send("HTTP/1.1 200 OK\r\n");
        while (client.send("A: " + std::string(1000, 'x') + "\r\n")) {
        }
    });
    CHECK(get(head).status().code() == XQAJIT_UNAVAILABLE);
}

TEST_CASE("an answer that is cut, or none, is asked for twice more and then given up", "[cache][http]") {
    struct Row {
        char const* what;
        std::string sent;
        std::size_t tries;
    };
    for (Row const& row : {Row{"nothing", "", 3}, Row{"less than its length", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", 3},
                           Row{"half a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx", 3},
                           Row{"no HTTP", "SSH-2.0-x\r\n", 1}, Row{"another protocol's version", "HTTP/9.9 200 OK\r\n\r\n", 1}}) {
        INFO(row.what);
        ScriptedServer const server([&](Request const&, Client const& client) { client.send(row.sent); });
        Result<HttpAnswer> const answer = get(server);
        CHECK(answer.status().code() == XQAJIT_UNAVAILABLE);
        CHECK(answer.status().message().find(server.url()) == 0);
        CHECK(server.requests() == row.tries);
    }
    for (int const status : {502, 503, 504}) {
        ScriptedServer const server([&](Request const&, Client const& client) { client.send(http_answer(status)); });
        CHECK(get(server)->status == status);
        CHECK(server.requests() == 3);
    }
    std::atomic<int> met{0};
    ScriptedServer const starting([&](Request const&, Client const& client) {
        if (++met == 3) client.send(http_answer(200, "at last"));
    });
    CHECK(get(starting)->body == "at last");
}

TEST_CASE("a server that is gone, silent, or slow without end is given up at its limit", "[cache][http]") {
    HttpLimits const patient{milliseconds(60'000), milliseconds(60'000), 1000};
    HttpLimits const limits{milliseconds(50), milliseconds(150), 1000};
    ScriptedServer const silent([](Request const&, Client const& client) { client.wait_for_client(); });
    for (HttpMethod const method : {HttpMethod::kGet, HttpMethod::kHead, HttpMethod::kPut}) {
        Status const status = client_of(silent.url(), limits)->request(method, "x", "body").status();
        CHECK(status.code() == XQAJIT_UNAVAILABLE);
        CHECK(status.message().find(" ms") != std::string::npos);
    }
    CHECK(silent.requests() == 3);  // none is tried again
    ScriptedServer const stops([](Request const&, Client const& client) {
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx");
        client.wait_for_client();
    });
    CHECK(get(stops, limits).status().message().find("no more of it") != std::string::npos);
    ScriptedServer const drips([](Request const&, Client const& client) {
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n");
        while (client.send("x")) std::this_thread::sleep_for(milliseconds(5));
    });
    CHECK(get(drips, {milliseconds(5000), milliseconds(100), 1000}).status().message().find("not the whole answer") !=
          std::string::npos);
    std::string const gone = "http://127.0.0.1:" + std::to_string(free_port());
    CHECK(client_of(gone, patient)->request(HttpMethod::kGet, "x").status().code() == XQAJIT_UNAVAILABLE);
    auto const stopped = client_of(silent.url(), patient);
    stopped->stop_at(std::chrono::steady_clock::now());
    CHECK(stopped->request(HttpMethod::kGet, "x").status().code() == XQAJIT_UNAVAILABLE);
}

TEST_CASE("a request leaves the host's signals as they were", "[cache][http]") {
    ScriptedServer const server([](Request const&, Client const& client) { client.send(http_answer(200)); });
    auto const client = client_of(server.url());
    sigset_t pipe, before, after, pending;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    for (bool const is_pending : {false, true}) {
        if (is_pending) {
            ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
            ::pthread_kill(::pthread_self(), SIGPIPE);
        }
        ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
        CHECK(client->request(HttpMethod::kGet, "x").ok());
        ::pthread_sigmask(SIG_BLOCK, nullptr, &after);
        ::sigpending(&pending);
        CHECK(::sigismember(&after, SIGPIPE) == ::sigismember(&before, SIGPIPE));
        CHECK(::sigismember(&pending, SIGPIPE) == (is_pending ? 1 : 0));
    }
    timespec const now{0, 0};
    ::sigtimedwait(&pipe, nullptr, &now);
    ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}
