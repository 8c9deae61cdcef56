// xqajit cache gc, and the cap of the setting.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "catch.h"
#include "shell.h"

namespace xqajit {

using nlohmann::json;
using namespace testing;

namespace {

void make_old(std::string const& path, int hours) {
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
}

// Two kernels of the fake compiler; gives the listing's entries.
json filled(Shell const& shell) {
    REQUIRE(shell.run({"prewarm", "--shapes", shell.write("list.json", kList), "--arch", "sm_90a"}).code == 0);
    json entries = shell.document({"cache", "ls"})["entries"];
    REQUIRE(entries.size() == 2);
    return entries;
}

}  // namespace

TEST_CASE("gc says what it would remove, then removes it", "[cli][gc]") {
    Shell shell;
    json const entries = filled(shell);
    make_old(entries[1]["path"], 48);
    std::uint64_t const bytes[] = {entries[0]["bytes"], entries[1]["bytes"]};
    std::string const size = std::to_string(bytes[0] + bytes[1] - 1);

    json const foretold = shell.document({"cache", "gc", "--max-size", size, "--max-age", "30d", "--dry-run"});
    CHECK(foretold["schema"] == "xqajit.cache.gc/1");
    CHECK(foretold["path"] == shell.folder() + "/cache");
    CHECK(foretold["exists"] == true);
    CHECK(foretold["dry_run"] == true);
    CHECK(foretold["limits"] == json({{"max_bytes", bytes[0] + bytes[1] - 1}, {"max_age_seconds", 2592000}}));
    CHECK(foretold["removed"]["entries"] == json({{"files", 1}, {"bytes", bytes[1]}}));
    CHECK(foretold["kept"]["entries"] == json({{"files", 1}, {"bytes", bytes[0]}}));
    for (char const* part : {"removed", "kept"})
        for (char const* kind : {"temporaries", "quarantined"}) CHECK(foretold[part][kind] == json({{"files", 0}, {"bytes", 0}}));
    CHECK(foretold["foreign"] == json({{"files", 0}, {"bytes", 0}}));
    CHECK(foretold["failed"].empty());
    CHECK(contains(shell.run({"cache", "gc", "--max-age", "1d", "--dry-run"}).out, "would remove 1 entries, "));
    CHECK(shell.document({"cache", "ls"})["entries"].size() == 2);

    ProcessResult const text = shell.run({"cache", "gc", "--max-age", "1d"});
    CHECK(text.code == 0);
    CHECK(text.err.empty());
    CHECK(contains(text.out, "removed 1 entries, "));
    CHECK(contains(text.out, "kept 1 entries, "));
    CHECK(contains(text.out, shell.folder() + "/cache"));
    json const left = shell.document({"cache", "ls"})["entries"];
    REQUIRE(left.size() == 1);
    CHECK(left[0]["key"] == entries[0]["key"]);
    json const rest = shell.document({"cache", "gc", "--max-size", "1"});
    CHECK(rest["dry_run"] == false);
    CHECK(rest["limits"]["max_age_seconds"].is_null());
    CHECK(rest["removed"]["entries"]["files"] == 1);
    for (auto const& left_over : std::filesystem::directory_iterator(shell.folder() + "/cache"))
        CHECK((left_over.path().filename() == "locks" || left_over.path().filename() == "totals.json"));  // no entry's
}

TEST_CASE("a limit of gc that is missing or wrong is named with what is accepted", "[cli][gc]") {
    Shell shell;
    struct Row {
        std::vector<std::string> arguments;
        std::vector<char const*> named;
    };
    char const* const sizes = "accepted is a size such as 512M";
    char const* const ages = "accepted is an age such as 30d";
    for (Row const& row : std::vector<Row>{{{}, {"--max-size", "--max-age"}},
                                           {{"--dry-run"}, {"--max-size", "--max-age"}},
                                           {{"--max-size", "big"}, {"--max-size", "'big'", sizes}},
                                           {{"--max-size", "0"}, {"--max-size", "'0'", sizes}},
                                           {{"--max-size", "1.5G"}, {"--max-size", "'1.5G'", sizes}},
                                           {{"--max-size=-1"}, {"--max-size", "'-1'", sizes}},
                                           {{"--max-size", "99999999T"}, {"--max-size", "'99999999T'", sizes}},
                                           {{"--max-size="}, {"--max-size"}},
                                           {{"--max-age", "30"}, {"--max-age", "'30'", ages}},
                                           {{"--max-age", "30D"}, {"--max-age", "'30D'", ages}},
                                           {{"--max-age", "0d"}, {"--max-age", "'0d'", ages}},
                                           {{"--max-size", "1G", "--max-age", "week"}, {"--max-age", "'week'", ages}},
                                           {{"--max-sise", "1G"}, {"did you mean '--max-size'?"}}}) {
        std::vector<std::string> arguments = {"cache", "gc"};
        arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
        ProcessResult const result = shell.run(arguments);
        INFO(result.out << result.err);
        CHECK(result.code == 2);
        CHECK(result.out.empty());
        for (char const* part : row.named) CHECK(contains(result.err, part));
    }
    shell.set("XQAJIT_CACHE_MAX_SIZE", "2GB");
    ProcessResult const setting = shell.run({"doctor"});
    CHECK(setting.code == 2);
    CHECK(contains(setting.err, "XQAJIT_CACHE_MAX_SIZE is '2GB': accepted is a size"));
}

TEST_CASE("gc of a missing directory has nothing to do, of one that cannot be used says why", "[cli][gc]") {
    Shell shell;
    json const missing = shell.document({"cache", "gc", "--max-size", "1G"});
    CHECK(missing["exists"] == false);
    CHECK(missing["removed"]["entries"]["files"] == 0);
    ProcessResult const text = shell.run({"cache", "gc", "--max-size", "1G"});
    CHECK(text.code == 0);
    CHECK(contains(text.out, "does not exist"));
    CHECK(!std::filesystem::exists(shell.folder() + "/cache"));

    shell.write("cache", "a file");
    ProcessResult const file = shell.run({"cache", "gc", "--max-size", "1G"});
    CHECK(file.code == 3);
    CHECK(contains(file.err, "ENOTDIR"));
}

TEST_CASE("gc names what it could not look into, and exits with 1", "[cli][gc]") {
    Shell shell;
    std::string const entry = filled(shell)[0]["path"];
    std::filesystem::path const body = std::filesystem::path(entry).parent_path();
    std::filesystem::rename(body, shell.folder() + "/moved");
    std::filesystem::create_directory_symlink(shell.folder() + "/moved", body);
    ProcessResult const text = shell.run({"cache", "gc", "--max-size", "1G"});
    CHECK(text.code == 1);
    CHECK(contains(text.err, body.string() + ": corrupt: "));
    CHECK(contains(text.out, "kept 1 entries"));
    json const document = shell.document({"cache", "gc", "--max-size", "1"}, 1);
    REQUIRE(document["failed"].size() == 1);
    CHECK(document["failed"][0]["path"] == body.string());
    CHECK(document["failed"][0]["state"] == "corrupt");
    CHECK(document["removed"]["entries"]["files"] == 1);
    CHECK(std::filesystem::exists(shell.folder() + "/moved"));
}

TEST_CASE("XQAJIT_CACHE_MAX_SIZE keeps the cache within it, with what was used last", "[cli][gc]") {
    Shell shell;
    json const entries = filled(shell);
    for (json const& entry : entries) make_old(entry["path"], 48);
    std::uint64_t const bytes = std::max(entries[0]["bytes"].get<std::uint64_t>(), entries[1]["bytes"].get<std::uint64_t>());
    shell.set("XQAJIT_CACHE_MAX_SIZE", std::to_string(2 * bytes));
    REQUIRE(shell.run({"prewarm", "--shapes", shell.write("list.json", kList), "--arch", "sm_80"}).code == 0);
    json const left = shell.document({"cache", "ls"});
    for (json const& entry : left["entries"]) CHECK(entry["metadata"]["target"] == "sm_80");
    CHECK(left["summary"]["bytes"] <= 2 * bytes);
}

}  // namespace xqajit
