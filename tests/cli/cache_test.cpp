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
    CHECK(std::count(text.err.begin(), text.err.end(), '\n') == 4);  // a line a kernel: no terminal here
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
    std::string const key = listing["entries"][0]["key"];
    CHECK(shell.document({"cache", "show", key.substr(0, 12)})["key"] == key);
    CHECK(shell.document({"cache", "path"})["path"] == shell.folder() + "/cache");
    CHECK(shell.run({"cache", "path"}).out == shell.folder() + "/cache\n");
    for (char const* verb : {"ls", "stats"}) {
        ProcessResult const readable = shell.run({"cache", verb});
        CHECK(readable.code == 0);
        CHECK(contains(readable.out, "mmha"));
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

}  // namespace xqajit
