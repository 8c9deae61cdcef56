// xqajit cache export, import and show of a bundle; layers as the command shows them.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "catch.h"
#include "shell.h"

namespace xqajit {

using nlohmann::json;
using namespace testing;

namespace {

// A machine that builds, with two kernels of the fake compiler, and an empty one.
struct Machines {
    Machines() { REQUIRE(builder.run({"prewarm", "--shapes", builder.write("list.json", kList), "--arch", "sm_90a"}).code == 0); }
    std::string key_file(char fill, mode_t mode = 0600) const {
        std::string const path = builder.write(std::string("key-") + fill, std::string(32, fill));
        ::chmod(path.c_str(), mode);
        return path;
    }
    void export_bundle() const { REQUIRE(builder.run({"cache", "export", bundle}).code == 0); }
    // As import must fail: with this exit code, these words, and nothing in the cache.
    void refused(std::vector<std::string> const& more, int code, std::vector<std::string> const& words) const {
        std::vector<std::string> arguments = {"cache", "import", bundle};
        arguments.insert(arguments.end(), more.begin(), more.end());
        ProcessResult const result = target.run(arguments);
        INFO(result.err);
        CHECK(result.code == code);
        CHECK(result.out.empty());
        for (std::string const& word : words) CHECK(contains(result.err, word));
        CHECK(target.document({"cache", "ls"})["entries"].empty());
        CHECK(target.document({"cache", "verify"})["summary"]["temporaries"] == 0);
    }
    Shell builder, target;
    std::string bundle = builder.folder() + "/kernels.xqb";
};

// Of this build: the library says so itself where it has no signatures.
bool has_signatures(Machines const& machines) {
    Shell shell;
    shell.set("XQAJIT_CACHE_KEY_FILE", machines.key_file('p'));
    REQUIRE(shell.run({"prewarm", "--shapes", shell.write("list.json", kList), "--arch", "sm_90a"}).code == 0);
    return shell.run({"cache", "export", shell.folder() + "/b"}).code == 0;
}

std::string bytes_of(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void rewrite(std::string const& path, std::string const& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

}  // namespace

TEST_CASE("a signed bundle goes from one machine to another, once, and both list the same", "[cli][bundle]") {
    Machines machines;
    if (!has_signatures(machines)) skip_test("this build has no signatures");
    for (Shell* shell : {&machines.builder, &machines.target}) shell->set("XQAJIT_CACHE_KEY_FILE", machines.key_file('k'));
    json const exported = machines.builder.document({"cache", "export", machines.bundle});
    CHECK(exported["schema"] == "xqajit.cache.export/1");
    CHECK(exported["entries"] == 2);
    CHECK(exported["signed"] == true);
    CHECK(exported["failed"].empty());
    CHECK(exported["bytes"] == std::filesystem::file_size(machines.bundle));
    CHECK(exported["entry_bytes"] == machines.builder.document({"cache", "ls"})["summary"]["bytes"]);
    struct stat facts {};
    REQUIRE(::stat(machines.bundle.c_str(), &facts) == 0);
    CHECK((facts.st_mode & 07133) == 0);  // others read it, as far as the umask lets them; none but its owner may write

    json const shown = machines.target.document({"cache", "show", machines.bundle});
    CHECK(shown["schema"] == "xqajit.cache.bundle/1");
    CHECK(shown["summary"]["signed"] == 2);
    json const listed = machines.builder.document({"cache", "ls"})["entries"];
    REQUIRE(shown["entries"].size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(shown["entries"][i]["key"] == listed[i]["key"]);
        CHECK(shown["entries"][i]["metadata"] == listed[i]["metadata"]);
    }
    CHECK(contains(machines.target.run({"cache", "show", machines.bundle}).out, "2 entries"));
    CHECK_FALSE(std::filesystem::exists(machines.target.folder() + "/cache"));

    json const imported = machines.target.document({"cache", "import", machines.bundle});
    CHECK(imported["schema"] == "xqajit.cache.import/1");
    CHECK(imported["entries"] == 2);
    CHECK(imported["imported"] == 2);
    CHECK(imported["verified"] == 2);
    CHECK(machines.target.document({"cache", "verify"})["summary"]["ok"] == 2);
    json const taken = machines.target.document({"cache", "ls"})["entries"];
    for (std::size_t i = 0; i < 2; ++i) CHECK(bytes_of(taken[i]["path"]) == bytes_of(listed[i]["path"]));
    ProcessResult const again = machines.target.run({"cache", "import", machines.bundle});
    CHECK(again.code == 0);
    CHECK(contains(again.out, "2 entries, 0 imported"));
    CHECK(contains(again.out, "2 there already; 2 signatures verified"));
    // What came in serves: no compile.
    json const warm =
        machines.target.document({"prewarm", "--shapes", machines.target.write("list.json", kList), "--arch", "sm_90a"});
    CHECK(warm["summary"]["hits"] == 2);
    // The same entries, the same file.
    std::string const first = bytes_of(machines.bundle);
    machines.export_bundle();
    CHECK(bytes_of(machines.bundle) == first);
}

TEST_CASE("an unsigned bundle is let in by name alone", "[cli][bundle]") {
    Machines machines;
    machines.export_bundle();
    CHECK(machines.target.document({"cache", "show", machines.bundle})["summary"]["signed"] == 0);
    machines.refused({}, 1, {machines.bundle, "is not signed", "--allow-unsigned"});
    machines.target.set("XQAJIT_CACHE_KEY_FILE", machines.key_file('k'));
    machines.refused({}, 1, {"is not signed"});
    json const imported = machines.target.document({"cache", "import", machines.bundle, "--allow-unsigned"});
    CHECK(imported["imported"] == 2);
    CHECK(imported["verified"] == 0);
}

TEST_CASE("a bundle that is signed under another key, or that no key can check, is refused", "[cli][bundle]") {
    Machines machines;
    if (!has_signatures(machines)) skip_test("this build has no signatures");
    machines.builder.set("XQAJIT_CACHE_KEY_FILE", machines.key_file('k'));
    machines.export_bundle();
    machines.refused({}, 1, {"XQAJIT_CACHE_KEY_FILE is not set", "--allow-unsigned"});
    std::string const other = machines.key_file('o');
    machines.target.set("XQAJIT_CACHE_KEY_FILE", other);
    for (std::vector<std::string> const& more : {std::vector<std::string>{}, {"--allow-unsigned"}})
        machines.refused(more, 1, {"signature is not that of key file " + other, "nothing is imported"});
    machines.target.unset("XQAJIT_CACHE_KEY_FILE");
    CHECK(machines.target.document({"cache", "import", machines.bundle, "--allow-unsigned"})["imported"] == 2);
}

TEST_CASE("a key file that is no secret stops export and import before they do anything", "[cli][bundle]") {
    Machines machines;
    machines.export_bundle();
    std::string const before = bytes_of(machines.bundle);
    struct Row {
        std::string path;
        int code;
        std::string reason;
    };
    for (Row const& row : {Row{machines.key_file('a', 0644), 2, "nobody but its owner may read it"},
                           Row{machines.key_file('b', 0620), 2, "nobody but its owner may write it"},
                           Row{machines.builder.write("short", "short"), 2, "owner may read it"},
                           Row{machines.builder.folder() + "/missing", 3, "ENOENT"}}) {
        for (Shell* shell : {&machines.builder, &machines.target}) shell->set("XQAJIT_CACHE_KEY_FILE", row.path);
        machines.refused({"--allow-unsigned"}, row.code, {"XQAJIT_CACHE_KEY_FILE: key file " + row.path, row.reason});
        ProcessResult const exported = machines.builder.run({"cache", "export", machines.bundle});
        CHECK(exported.code == row.code);
        CHECK(contains(exported.err, row.reason));
        CHECK(bytes_of(machines.bundle) == before);
    }
}

TEST_CASE("a bundle that is damaged, cut, longer, foreign or of another version is refused whole", "[cli][bundle][J27]") {
    Machines machines;
    machines.export_bundle();
    std::string const good = bytes_of(machines.bundle);
    auto const changed = [&](std::size_t offset, char value) {
        std::string bytes = good;
        bytes[offset] = value;
        return bytes;
    };
    struct Row {
        std::string bytes, reason;
    };
    for (Row const& row :
         {Row{good.substr(0, good.size() - 1), "length is"}, Row{good + 'x', "length is"}, Row{"", "length is 0 bytes"},
          Row{changed(0, 'x'), "magic"}, Row{changed(8, 0), "version is 0: this library reads 1"},
          Row{changed(8, 2), "version is 2: this library reads 1"},
          Row{changed(11, 1), "version is 16777217: this library reads 1"}, Row{changed(70, '\x7f'), "checksum"},
          Row{changed(good.size() - 1, static_cast<char>(good.back() ^ 1)), "checksum does not match"},
          Row{std::string(1000, '{'), "magic"}}) {
        rewrite(machines.bundle, row.bytes);
        machines.refused({"--allow-unsigned"}, 1, {machines.bundle, row.reason});
    }
    std::filesystem::remove(machines.bundle);
    machines.refused({"--allow-unsigned"}, 2, {"file is '" + machines.bundle + "'", "ENOENT", "accepted is the path of a bundle"});
    std::filesystem::create_directory(machines.bundle);
    machines.refused({"--allow-unsigned"}, 1, {"is not a regular file"});
    ProcessResult const shown = machines.target.run({"cache", "show", machines.bundle});
    CHECK(shown.code == 1);
    CHECK(contains(shown.err, "is not a regular file"));
}

TEST_CASE("an empty cache makes a bundle of nothing, and an import of it is done", "[cli][bundle][J27]") {
    Shell shell;
    std::string const bundle = shell.folder() + "/empty.xqb";
    CHECK(shell.document({"cache", "export", bundle})["entries"] == 0);
    CHECK_FALSE(std::filesystem::exists(shell.folder() + "/cache"));
    CHECK(shell.document({"cache", "import", bundle})["entries"] == 0);
    CHECK(shell.document({"cache", "show", bundle})["summary"]["entries"] == 0);
}

TEST_CASE("export leaves out what is damaged, names it and fails, and what cannot be written leaves the old file",
          "[cli][bundle]") {
    Machines machines;
    machines.export_bundle();
    std::string const before = bytes_of(machines.bundle);
    for (std::string const& path : {machines.builder.folder() + "/none/b.xqb", std::string("/proc/b.xqb")}) {
        ProcessResult const result = machines.builder.run({"cache", "export", path});
        CHECK(result.code == 3);
        CHECK(contains(result.err, path));
    }
    CHECK(machines.builder.run({"cache", "export", machines.builder.folder()}).code == 3);
    CHECK(bytes_of(machines.bundle) == before);

    std::string const entry = machines.builder.document({"cache", "ls"})["entries"][0]["path"];
    std::ofstream(entry, std::ios::app) << "x";
    ProcessResult const text = machines.builder.run({"cache", "export", machines.bundle});
    CHECK(text.code == 1);
    CHECK(contains(text.err, entry + ": corrupt: "));
    CHECK(contains(text.out, "1 entries of "));
    json const exported = machines.builder.document({"cache", "export", machines.bundle}, 1);
    REQUIRE(exported["failed"].size() == 1);
    CHECK(exported["failed"][0]["path"] == entry);
    CHECK(machines.target.document({"cache", "import", machines.bundle, "--allow-unsigned"})["imported"] == 1);
    for (auto const& file : std::filesystem::directory_iterator(machines.builder.folder()))
        CHECK_FALSE(file.path().filename().string().starts_with(".tmp-"));
}

TEST_CASE("cache path and doctor show each layer, its origin and its state", "[cli][layers][J12]") {
    Machines machines;
    machines.export_bundle();
    std::string const directory = machines.builder.folder() + "/cache", missing = machines.builder.folder() + "/missing";
    machines.target.set("XQAJIT_CACHE_LAYERS", directory + ":" + machines.bundle + ":" + missing);
    std::string const cache = machines.target.folder() + "/cache";
    ProcessResult const path = machines.target.run({"cache", "path"});
    CHECK(path.code == 0);
    CHECK(path.out.starts_with(cache + "\n"));
    std::string const doctor = machines.target.run({"doctor"}).out;
    for (std::string const& text : {path.out, doctor}) {
        INFO(text);
        CHECK(contains(text, directory + " (XQAJIT_CACHE_LAYERS), directory"));
        CHECK(contains(text, machines.bundle + " (XQAJIT_CACHE_LAYERS), bundle of 2 entries, "));
        CHECK(contains(text, missing + " (XQAJIT_CACHE_LAYERS), not usable: "));
        CHECK(contains(text, "ENOENT"));
    }
    json const warm =
        machines.target.document({"prewarm", "--shapes", machines.target.write("list.json", kList), "--arch", "sm_90a"});
    CHECK(warm["summary"]["hits"] == 2);
    CHECK(machines.target.document({"cache", "ls"})["entries"].empty());
}

TEST_CASE("a bundle whose name looks like a key is shown by a path", "[cli][bundle]") {
    Machines machines;
    std::string const path = machines.builder.folder() + "/abc";
    REQUIRE(machines.builder.run({"cache", "export", path}).code == 0);
    CHECK(machines.builder.document({"cache", "show", path})["schema"] == "xqajit.cache.bundle/1");
    CHECK(machines.builder.run({"cache", "show", "abcdef0123"}).code == 2);  // the start of no key
    for (char const* verb : {"export", "import"}) CHECK(machines.builder.run({"cache", verb}).code == 2);
}

}  // namespace xqajit
