#include "base/url.h"

#include "base/settings.h"
#include "catch.h"

using namespace xqajit;

TEST_CASE("a URL of a server is taken apart", "[base][url]") {
    struct Row {
        std::string text, base, user, password;
    };
    for (Row const& row :
         {Row{"http://host", "http://host", "", ""}, Row{"https://host:8443/", "https://host:8443", "", ""},
          Row{"http://host/a/b//", "http://host/a/b", "", ""}, Row{"http://[::1]:80/c", "http://[::1]:80/c", "", ""},
          Row{"http://ann@host/c", "http://host/c", "ann", ""},
          Row{"https://ann:pa%2Fss%40word@host:1/c", "https://host:1/c", "ann", "pa/ss@word"},
          Row{"http://ann:a:b@host", "http://host", "ann", "a:b"}}) {
        INFO(row.text);
        Result<Url> const url = Url::parse(row.text);
        REQUIRE(url.ok());
        CHECK(url->base == row.base);
        CHECK(url->has_credentials == !row.user.empty());
        CHECK(url->user == row.user);
        CHECK(url->password == row.password);
    }
}

TEST_CASE("what is no URL of a server is refused, and its secrets are in no message", "[base][url]") {
    for (std::string const text : {"",
                                   "host",
                                   "ftp://ann:s3cret@host/",
                                   "file:///etc/passwd",
                                   "HTTP://host",
                                   "http://",
                                   "http:///path",
                                   "http://:80/",
                                   "http://host:",
                                   "http://host:0",
                                   "http://host:65536",
                                   "http://host:8o",
                                   "http://host:+80",
                                   "http://ho st/",
                                   "http://host/a b",
                                   "http://host/\n",
                                   "http://host/?token=s3cret",
                                   "http://host/#s3cret",
                                   "http://host/a@b",
                                   "http://@host",
                                   "http://:s3cret@host",
                                   "http://ann:s3c%zzret@host",
                                   "http://ann:s3cret%00@host",
                                   "http://ann:s3cret%4@host",
                                   "http://ann:s3cret@host@evil/",
                                   "http://ann:s3/cret@host/",
                                   "http://ann:s3?cret@host",
                                   "http://ann%3As:s3cret@host",
                                   "http://[::1",
                                   "http://[::1]x",
                                   "http://[zz]/",
                                   "http://host\\s3cret@evil/",
                                   "ann:s3cret@host://",
                                   "//ann:s3cret@host/"}) {
        INFO(text);
        Result<Url> const url = Url::parse(text);
        REQUIRE_FALSE(url.ok());
        CHECK(url.status().code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(url.status().message().find("http://[user:password@]host") != std::string::npos);
        for (char const* secret : {"s3cret", "s3", "cret"}) CHECK(url.status().message().find(secret) == std::string::npos);
        Result<Settings> const settings = Settings::parse(std::vector<std::string>{"XQAJIT_REMOTE_CACHE=" + text});
        CHECK(settings.ok() == text.empty());
        CHECK(settings.status().message().find("cret") == std::string::npos);
    }
    CHECK_FALSE(Url::parse("http://host/" + std::string(5000, 'a')).ok());
}

TEST_CASE("a URL is shown without its credentials, whatever is wrong with it", "[base][url]") {
    CHECK(without_credentials("http://ann:pass@host/c") == "http://***@host/c");
    CHECK(without_credentials("http://ann:pa/s@s@host/c") == "http://***@host/c");
    CHECK(without_credentials("http://host/c?token=abc") == "http://host/c?***");
    CHECK(without_credentials("http://host/c?token=a@b") == "http://***@b");
    CHECK(without_credentials("ann:pass@host") == "***@host");
    CHECK(without_credentials("ann:pass@host://x") == "***@host://x");
    CHECK(without_credentials("http://host:80/c") == "http://host:80/c");
    CHECK(without_credentials("") == "");
    Result<Settings> const settings = Settings::parse(std::vector<std::string>{"XQAJIT_REMOTE_CACHE=http://ann:pass@host/c"});
    REQUIRE(settings.ok());
    CHECK(settings->text(SettingId::kRemoteCache) == "http://ann:pass@host/c");
    CHECK(settings->shown(SettingId::kRemoteCache) == "http://***@host/c");
    CHECK(settings->shown(SettingId::kRemoteTimeout) == "250");
}
