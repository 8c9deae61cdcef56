#include "cache/layers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "catch.h"
#include "unit/cache/bundle_fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

void fill(std::string const& directory, std::vector<Entry> const& entries) {
    auto const store = open_store(directory);
    for (Entry const& entry : entries) REQUIRE(store->store(entry).ok());
}

// The same entry with other metadata: which layer it came from.
Entry marked(int number, std::string const& mark, int compiler = 0) {
    Entry entry = sample_entry(number, 100, compiler);
    entry.metadata = mark;
    return entry;
}

std::string metadata_of(std::optional<LayerEntry> const& found) { return found ? found->entry.metadata : "none"; }

}  // namespace

TEST_CASE("layers are looked into in their order, the library's own last", "[cache][layers]") {
    TempDirectory const temp;
    fill(temp.path("a"), {marked(1, "a")});
    write_raw(temp.path("b.xqb"), bundle_of({marked(2, "b")}));
    std::vector<Entry> rest = {marked(1, "c"), marked(2, "c"), marked(3, "c")};
    fill(temp.path("c"), rest);
    std::vector<Entry> own = {marked(3, "own"), marked(4, "own")};
    std::sort(own.begin(), own.end(), [](Entry const& x, Entry const& y) { return x.key < y.key; });
    std::string const embedded = bundle_of(own);
    Warnings const warnings;
    Layers const layers(temp.path("a") + ":" + temp.path("b.xqb") + "::" + temp.path("c/"), embedded);
    CHECK(warnings.count() == 0);
    std::vector<LayerState> const states = layers.states();
    REQUIRE(states.size() == 4);
    CHECK(states[0].kind == LayerKind::kDirectory);
    CHECK(states[1].kind == LayerKind::kBundle);
    CHECK(states[1].entries == 1);
    CHECK(states[2].origin == "XQAJIT_CACHE_LAYERS");
    CHECK(states[3].kind == LayerKind::kBundle);
    CHECK(states[3].origin == "embedded");
    CHECK(states[3].path.empty());
    CHECK(states[3].bytes == embedded.size());
    for (auto const& [number, mark] : {std::pair{1, "a"}, {2, "b"}, {3, "c"}, {4, "own"}, {5, "none"}}) {
        CHECK(metadata_of(layers.load(sample_key(number))) == mark);
        CHECK(metadata_of(layers.peek(sample_key(number))) == mark);
        CHECK(metadata_of(layers.load_any_compiler(sample_key(number).body)) == mark);
        CHECK(metadata_of(layers.peek_any_compiler(sample_key(number).body)) == mark);
    }
    CHECK(layers.load(sample_key(1))->kind == LayerKind::kDirectory);
    CHECK(layers.load(sample_key(2))->kind == LayerKind::kBundle);
}

TEST_CASE("no setting and no bundle are no layers", "[cache][layers]") {
    Layers const layers("", "");
    CHECK(layers.states().empty());
    CHECK_FALSE(layers.load(sample_key(1)));
    CHECK_FALSE(layers.load_any_compiler(sample_key(1).body));
}

TEST_CASE("of several compilers' images a bundle gives that of the highest version", "[cache][layers]") {
    TempDirectory const temp;
    std::vector<Entry> entries = {marked(1, R"({"nvrtc_version": "12.9"})", 1), marked(1, R"({"nvrtc_version": "13.0"})", 2),
                                  marked(1, R"({"nvrtc_version": "12.10"})", 3)};
    std::sort(entries.begin(), entries.end(), [](Entry const& a, Entry const& b) { return a.key < b.key; });
    write_raw(temp.path("b.xqb"), bundle_of(entries));
    Layers const layers(temp.path("b.xqb"), "");
    CHECK(layers.load_any_compiler(sample_key(1).body)->entry.key.compiler == sample_key(1, 2).compiler);
    CHECK(layers.load(sample_key(1, 3))->entry.key.compiler == sample_key(1, 3).compiler);
    CHECK_FALSE(layers.load(sample_key(1, 4)));
}

TEST_CASE("a layer that others may write, or that is something else, is left out with its reason", "[cache][layers]") {
    TempDirectory const temp;
    std::vector<Entry> const entries = {marked(1, "x")};
    fill(temp.path("good"), entries);
    auto const refused = [&](std::string const& path, std::string const& reason) {
        Warnings const warnings;
        Layers const layers(path + ":" + temp.path("good"), "");
        std::vector<LayerState> const states = layers.states();
        REQUIRE(states.size() == 2);
        INFO(states[0].reason);
        CHECK(states[0].kind == LayerKind::kUnusable);
        CHECK(states[0].path == path);
        CHECK(states[0].reason.find(path) != std::string::npos);
        CHECK(states[0].reason.find(reason) != std::string::npos);
        CHECK(warnings.count() == 1);
        CHECK(metadata_of(layers.load(sample_key(1))) == "x");  // the other is none the worse
    };
    fill(temp.path("dir"), entries);
    write_raw(temp.path("file"), bundle_of(entries));
    for (char const* name : {"dir", "file"})
        for (mode_t const mode : {0770, 0707, 0777, 01777}) {
            REQUIRE(::chmod(temp.path(name).c_str(), mode) == 0);
            refused(temp.path(name), "nobody but its owner may write it");
        }
    refused("relative/path", "accepted is an absolute path");
    refused(temp.path("missing"), "ENOENT");
    refused(temp.path("good/totals.json"), "ENOENT");
    REQUIRE(::mkfifo(temp.path("fifo").c_str(), 0600) == 0);
    refused(temp.path("fifo"), "neither a directory nor a file");
    write_raw(temp.path("foreign"), std::string(1000, 'x'));
    refused(temp.path("foreign"), "magic is not that of a bundle");
    write_raw(temp.path("empty"), "");
    refused(temp.path("empty"), "length is 0 bytes");
    std::filesystem::create_symlink(temp.path("nowhere"), temp.path("dangling"));
    refused(temp.path("dangling"), "ENOENT");
    REQUIRE(!std::filesystem::exists(temp.path("dir/uid-0")));  // no subdirectory takes a layer's place
    {
        std::filesystem::create_directory_symlink(temp.path("good"), temp.path("link"));
        Layers const layers(temp.path("link"), "");
        CHECK(metadata_of(layers.load(sample_key(1))) == "x");
    }
    if (::geteuid() == 0) {
        ::chmod(temp.path("file").c_str(), 0644);
        REQUIRE(::chown(temp.path("file").c_str(), 12345, 12345) == 0);
        refused(temp.path("file"), "owned by uid 12345");
        REQUIRE(::lchown(temp.path("link").c_str(), 12345, 12345) == 0);
        refused(temp.path("link"), "is a link that is owned by uid 12345");
    }
}

TEST_CASE("a layer is only read: nothing is moved, marked or made, whoever may write it", "[cache][layers][J12]") {
    TempDirectory const temp;
    fill(temp.path("a"), {marked(1, "a"), marked(2, "a")});
    auto const store = open_store(temp.path("a"));
    std::string const good = file_of(*store, sample_key(1)), bad = file_of(*store, sample_key(2));
    write_raw(bad, "damaged");
    for (std::string const& path : {good, bad}) make_old(path, 100000);
    auto const before = std::filesystem::last_write_time(good);
    Layers const layers(temp.path("a"), "");
    Warnings const warnings;
    CHECK(layers.load(sample_key(1)));
    CHECK_FALSE(layers.peek(sample_key(2)));
    CHECK(warnings.count() == 0);
    CHECK_FALSE(layers.load(sample_key(2)));
    CHECK_FALSE(layers.load(sample_key(2)));
    REQUIRE(warnings.count() == 1);
    CHECK(warnings.texts()[0].find(bad) != std::string::npos);
    CHECK(warnings.texts()[0].find("left in place") != std::string::npos);
    CHECK(std::filesystem::last_write_time(good) == before);
    CHECK(read_raw(bad) == "damaged");
    CHECK_FALSE(std::filesystem::exists(temp.path("a/quarantine")));
}

TEST_CASE("a damaged entry of a bundle is missed in it and found in the next layer", "[cache][layers][J07]") {
    TempDirectory const temp;
    std::string damaged = bundle_of({marked(1, "damaged")});
    damaged.back() = static_cast<char>(damaged.back() ^ 1);
    write_raw(temp.path("a.xqb"), damaged);
    write_raw(temp.path("b.xqb"), bundle_of({marked(1, "good")}));
    Layers const layers(temp.path("a.xqb") + ":" + temp.path("b.xqb"), "");
    Warnings const warnings;
    CHECK(metadata_of(layers.peek(sample_key(1))) == "good");
    CHECK(warnings.count() == 0);
    for (int i = 0; i < 3; ++i) {
        CHECK(metadata_of(layers.load(sample_key(1))) == "good");
        CHECK(metadata_of(layers.load_any_compiler(sample_key(1).body)) == "good");
    }
    CHECK(warnings.count() == 1);
}

TEST_CASE("an embedded bundle that is damaged is left out with its reason", "[cache][layers]") {
    Warnings const warnings;
    Layers const layers("", "not a bundle");
    REQUIRE(layers.states().size() == 1);
    CHECK(layers.states()[0].kind == LayerKind::kUnusable);
    CHECK(layers.states()[0].reason.find("length is 12 bytes") != std::string::npos);
    CHECK(warnings.count() == 1);
}
