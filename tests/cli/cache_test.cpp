// The commands over the disk cache.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "catch.h"
#include "shell.h"

namespace xqajit {

using nlohmann::json;
using namespace testing;

TEST_CASE("prewarm, then the listing, show, verify, stats and path agree", "[cli]") {
    Shell shell;
    std::string const list = shell.write("list.json", kList);
    ProcessResult const text = shell.run({"prewarm", "--shapes", list, "--arch", "sm_90a,sm_80"});
    INFO(text.err);
    CHECK(text.code == 0);
    CHECK(contains(text.out, "3 entries, 4 kernels: 4 compiled, 0 hits, 0 failed"));
    CHECK(std::count(text.err.begin(), text.err.end(), '\n') == 5);  // the workers, and a line a kernel: no terminal here
    CHECK(contains(text.err, "[4/4] "));

    json const again = shell.document({"prewarm", "--shapes", list, "--arch", "sm_90a,sm_80", "--jobs", "2"});
    CHECK(again["summary"]["hits"] == 4);
    json const listing = shell.document({"cache", "ls"});
    CHECK(listing["entries"].size() == 4);
    json const stats = shell.document({"cache", "stats"});
    CHECK(stats["groups"].size() == 2);
    CHECK(stats["summary"]["entries"] == 4);
    CHECK(stats["summary"]["bytes"] == listing["summary"]["bytes"]);
    CHECK(shell.document({"cache", "verify"})["summary"]["ok"] == 4);
    std::string const entry = listing["entries"][0]["path"];
    std::ofstream(entry.substr(0, entry.rfind('/')) + "/.tmp-1-1") << "half";
    json const verified = shell.document({"cache", "verify"});
    CHECK(verified["temporaries"].size() == 1);
    CHECK(verified["summary"]["temporary_bytes"] == 4);
    CHECK(contains(shell.run({"cache", "verify"}).out, "4 entries: 4 ok, 0 corrupt, 0 unreadable; 1 temporary files, 4 B"));
    std::string const key = listing["entries"][0]["key"];
    CHECK(shell.document({"cache", "show", key.substr(0, 12)})["key"] == key);
    CHECK(shell.document({"cache", "path"})["path"] == shell.folder() + "/cache");
    CHECK(shell.run({"cache", "path"}).out == shell.folder() + "/cache\n");
    for (char const* verb : {"ls", "stats"}) {
        ProcessResult const readable = shell.run({"cache", verb});
        CHECK(readable.code == 0);
        CHECK(contains(readable.out, "hmma"));
        CHECK(contains(readable.out, "sm_80"));
        CHECK(contains(readable.out, "4 entries"));
    }

    std::ofstream(listing["entries"][0]["path"].get<std::string>(), std::ios::app) << "x";
    CHECK(shell.document({"cache", "verify"}, 1)["summary"]["failed"] == 1);
    CHECK(contains(shell.run({"cache", "verify"}).out, listing["entries"][0]["path"].get<std::string>()));
    CHECK(shell.document({"cache", "stats"})["summary"]["corrupt"] == 1);
}

TEST_CASE("the flag --cache-dir wins over the setting", "[cli][J12]") {
    Shell shell;
    std::string const list = shell.write("list.json", kList);
    std::string const other = shell.folder() + "/other";
    CHECK(shell.run({"prewarm", "--shapes", list, "--arch", "sm_90a", "--cache-dir", other}).code == 0);
    CHECK(shell.document({"cache", "ls", "--cache-dir", other})["entries"].size() == 2);
    CHECK(shell.document({"cache", "ls"})["entries"].empty());
}

TEST_CASE("a command that only looks makes no directory, and says that there is none", "[cli][J12]") {
    for (bool const shared : {false, true}) {
        Shell shell;
        std::string const named = shell.folder() + "/cache";
        if (shared) std::filesystem::create_directory(named);
        if (shared) std::filesystem::permissions(named, std::filesystem::perms(01777));
        auto const untouched = [&] { return shared ? std::filesystem::is_empty(named) : !std::filesystem::exists(named); };
        for (char const* verb : {"ls", "stats", "verify", "path"}) {
            INFO(verb);
            json const document = shell.document({"cache", verb});
            CHECK(document["exists"] == false);
            ProcessResult const text = shell.run({"cache", verb});
            CHECK(text.code == 0);
            CHECK(contains(text.out + text.err, document["path"].get<std::string>() + " does not exist"));
            CHECK(untouched());
        }
        CHECK(shell.run({"cache", "show", "00"}).code == 2);
        json const doctor = shell.document({"doctor"});
        CHECK(doctor["cache"]["exists"] == false);
        CHECK(doctor["cache"]["writable"] == true);
        CHECK(contains(shell.run({"doctor"}).out, "missing: "));
        CHECK(shell.run(with_shape({"explain", "--arch", "sm_90a"})).code == 0);
        CHECK(shell.run({"capabilities"}).code == 0);
        CHECK(untouched());

        CHECK(shell.run({"prewarm", "--shapes", shell.write("list.json", kList), "--arch", "sm_90a"}).code == 0);
        json const listing = shell.document({"cache", "ls"});
        CHECK(listing["exists"] == true);
        CHECK(listing["entries"].size() == 2);
    }
}

TEST_CASE("what stands in place of the cache directory or a folder of it fails verify and the listings, by name", "[cli][J07]") {
    namespace fs = std::filesystem;
    for (char const* part : {"", "/quarantine", "/prefix", "/prefix/body"})
        for (char const* kind : {"file", "link", "dangling link", "shared"}) {
            bool const is_root = *part == '\0';
            if (is_root && (kind == std::string("link") || kind == std::string("shared"))) continue;  // accepted: see the README
            INFO(kind << " in place of cache" << part);
            Shell shell;
            REQUIRE(shell.run({"prewarm", "--shapes", shell.write("list.json", kList), "--arch", "sm_90a"}).code == 0);
            fs::path const body = fs::path(shell.document({"cache", "ls"})["entries"][0]["path"].get<std::string>()).parent_path();
            fs::path const place = part == std::string("/prefix")        ? body.parent_path()
                                   : part == std::string("/prefix/body") ? body
                                                                         : fs::path(shell.folder() + "/cache" + part);
            fs::create_directories(place);
            fs::permissions(place, fs::perms::owner_all);
            if (kind == std::string("shared")) {
                fs::permissions(place, fs::perms(0777));
            } else {
                fs::rename(place, shell.folder() + "/moved");
                if (kind == std::string("file")) shell.write("file", "x");
                if (kind == std::string("file")) fs::copy(shell.folder() + "/file", place);
                if (kind == std::string("link")) fs::create_directory_symlink(shell.folder() + "/moved", place);
                if (kind == std::string("dangling link")) fs::create_symlink("nowhere", place);
            }
            for (char const* verb : {"verify", "ls", "stats"}) {
                ProcessResult const text = shell.run({"cache", verb});
                CHECK(text.code == (is_root ? 3 : 1));
                CHECK(contains(text.out + text.err, place.string()));
                if (is_root) continue;
                CHECK(contains(text.out + text.err,
                               place.string() + (verb == std::string("verify") ? ": corrupt" : " is not listed: corrupt")));
                json const document = shell.document({"cache", verb}, 1);
                json const& failed = document[verb == std::string("verify") ? "failed" : "unlisted"];
                REQUIRE(failed.size() == 1);
                CHECK(failed[0]["path"] == place.string());
                CHECK(failed[0]["state"] == "corrupt");
            }
        }
}

TEST_CASE("an empty --cache-dir is refused by name, an empty setting is the same as unset", "[cli][J12]") {
    Shell shell;
    std::string const list = shell.write("list.json", kList);
    for (std::vector<std::string> arguments :
         std::vector<std::vector<std::string>>{{"prewarm", "--shapes", list, "--arch", "sm_90a"},
                                               {"cache", "ls"},
                                               {"cache", "show", "00"},
                                               {"cache", "verify"},
                                               {"cache", "gc", "--max-size", "1G"},
                                               {"cache", "path"},
                                               {"cache", "stats"},
                                               with_shape({"explain"}),
                                               with_shape({"run"}),
                                               {"capabilities"},
                                               {"doctor"}}) {
        INFO(arguments.front() << " " << arguments.back());
        arguments.insert(arguments.end(), {"--cache-dir", ""});
        ProcessResult const result = shell.run(arguments);
        CHECK(result.code == 2);
        CHECK(contains(result.err, "--cache-dir: '': accepted is the path of a directory"));
    }
    CHECK(shell.run({"cache", "path", "--cache-dir="}).code == 2);

    shell.set("XQAJIT_CACHE_DIR", "");
    shell.set("XDG_CACHE_HOME", shell.folder() + "/xdg");
    json const path = shell.document({"cache", "path"});
    CHECK(path["path"] == shell.folder() + "/xdg/xqajit");
    CHECK(path["origin"] == "XDG_CACHE_HOME");
}

TEST_CASE("a home that is no place of one's own is named with its value and what is accepted", "[cli][J12]") {
    Shell shell;
    shell.unset("XQAJIT_CACHE_DIR");
    for (char const* bad : {"/", "relative"}) {
        std::string const said = std::string(" is '") + bad + "': accepted is an absolute path other than /";
        shell.unset("XDG_CACHE_HOME");
        shell.set("HOME", bad);
        CHECK(contains(shell.run({"cache", "ls"}).err, "HOME" + said));
        CHECK(shell.run({"cache", "ls"}).code == 3);
        shell.set("XDG_CACHE_HOME", bad);
        shell.set("HOME", shell.folder());
        ProcessResult const used = shell.run({"cache", "path"});
        CHECK(used.code == 0);
        CHECK(used.out == shell.folder() + "/.cache/xqajit\n");
        CHECK(contains(used.err, "XDG_CACHE_HOME" + said));
        CHECK(contains(shell.run({"doctor"}).out, "XDG_CACHE_HOME" + said));
    }
}

}  // namespace xqajit
