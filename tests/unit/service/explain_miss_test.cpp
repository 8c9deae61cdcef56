// Why a kernel would be compiled.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cache/disk_store.h"
#include "jit/compiler.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

json explain(Service& service, XQAParams const* params, std::string const& key = "", char const* arch = "sm_90a") {
    json document = json::parse(must(service.cache_explain_miss(key, params, arch)));
    CHECK(document["schema"] == "xqajit.cache.explain-miss/1");
    return document;
}

json only_kernel(Service& service, XQAParams const& params, char const* arch = "sm_90a") {
    json const document = explain(service, &params, "", arch);
    REQUIRE(document["kernels"].size() == 1);
    return document["kernels"][0];
}

// Field -> [wanted, found] of the nearest entry.
json nearest_differences(json const& kernel) {
    CHECK(kernel["result"] == "miss");
    REQUIRE_FALSE(kernel["nearest"].empty());
    json fields = json::object();
    for (json const& difference : kernel["nearest"][0]["differences"])
        fields[difference["field"].get<std::string>()] = {difference["wanted"], difference["found"]};
    return fields;
}

// The one entry of the cache, with its metadata changed, and under another key.
void rewrite_entry(World const& world, json const& changes, CacheKey const& key) {
    auto const store = cache::DiskStore::open({world.cache_dir(), "argument"});
    cache::Listing const listing = store->list();
    REQUIRE(listing.entries.size() == 1);
    cache::Entry entry = *store->load(listing.entries[0].key);
    json metadata = json::parse(entry.metadata);
    metadata.merge_patch(changes);  // null removes
    entry.metadata = metadata.dump();
    entry.key = key;
    std::filesystem::remove(listing.entries[0].path);
    require_ok(store->store(entry));
}

CacheKey only_key(World const& world) { return cache::DiskStore::open({world.cache_dir(), "argument"})->list().entries.at(0).key; }

}  // namespace

TEST_CASE("the nearest entry is named with each field that differs, and with no other", "[service]") {
    World world;
    world.enter(0);
    XQAParams far = plain_params();
    far.head_dim = 256;
    far.softcap = 30;
    require_ok(world.service()->prepare(far));
    require_ok(world.service()->prepare(plain_params()));
    std::size_t const compiled = world.compiles();
    auto const service = world.service();

    XQAParams wanted = plain_params();
    wanted.page_size = 32;
    json const document = explain(*service, &wanted);
    CHECK(document["entries"] == 2);
    CHECK(document["path"] == world.cache_dir());
    json const& kernel = document["kernels"][0];
    CHECK(nearest_differences(kernel) == json({{"XQAJIT_PAGE_SIZE", {"32", "64"}}}));
    CHECK(kernel["nearest"].size() == 2);
    CHECK(kernel["nearest"][1]["differences"].size() > 1);

    json const other_arch = nearest_differences(only_kernel(*service, plain_params(), "sm_80"));
    CHECK(other_arch["target"] == json({"sm_80", "sm_90a"}));
    CHECK(other_arch["family"] == json({"hmma", "gmma"}));
    CHECK(other_arch.contains("sources"));
    CHECK_FALSE(other_arch.contains("options"));  // the target says it

    CHECK(only_kernel(*service, plain_params())["result"] == "hit");
    CHECK_FALSE(only_kernel(*service, plain_params()).contains("nearest"));
    CHECK(world.compiles() == compiled);
    CHECK(service->stats().disk_hits + service->stats().misses == 0);  // looking is neither
}

TEST_CASE("every field of the key is one that a miss can be put down to", "[service][J10]") {
    World world;
    world.enter(0);
    require_ok(world.service()->prepare(plain_params()));
    json const kernel = only_kernel(*world.service(), plain_params());
    json const explained = json::parse(must(world.service()->explain(plain_params(), "sm_90a", 1, 1)));
    std::istringstream lines(explained["key"]["text"].get<std::string>());
    std::set<std::string> names;
    for (std::string line; std::getline(lines, line);) {
        std::string name = line.substr(0, line.find('='));
        if (name == "format") name = "key_format";
        if (name == "option") name = "options";
        names.insert(name);
    }
    CHECK(names.size() == kernel["fields"].size());
    for (std::string const& name : names) {
        INFO(name);
        CHECK(kernel["fields"].contains(name));
    }
}

TEST_CASE("an entry by another compiler, other sources or other options is told apart", "[service][J08]") {
    struct Row {
        char const* what;
        json changes;
        char const* field;  // null: the compiler alone
        json found;
    };
    std::string const other(32, 'a');
    for (Row const& row :
         std::vector<Row>{{"sources", {{"sources", other}}, "sources", other},
                          {"options", {{"options", {"--std=c++17"}}}, "options", "--std=c++17"},
                          {"format", {{"key_format", "0"}}, "key_format", "0"},
                          {"a macro that is gone", {{"macros", {{"XQAJIT_OLD", "1"}}}}, "XQAJIT_OLD", "1"},
                          {"a macro that is new", {{"macros", {{"XQAJIT_HAS_LSE", nullptr}}}}, "XQAJIT_HAS_LSE", nullptr},
                          {"not recorded", {{"sources", nullptr}}, "sources", nullptr},
                          {"no text", {{"sources", 7}}, "sources", nullptr},
                          {"another compiler", json::object(), nullptr, nullptr},
                          {"metadata that lies", json::object(), "body", std::string(32, '1')}}) {
        INFO(row.what);
        World world;
        world.enter(0);
        require_ok(world.service()->prepare(plain_params()));
        CacheKey key = only_key(world);
        std::string const compiler = key.compiler.hex();
        (row.field == nullptr ? key.compiler : key.body) = Digest{0x1111111111111111u, 0x1111111111111111u};
        rewrite_entry(world, row.changes, key);
        json const differences = nearest_differences(only_kernel(*world.service(), plain_params()));
        CHECK(differences.size() == 1);
        if (row.field == nullptr) {
            CHECK(differences["compiler"] == json({compiler + " (NVRTC 13.0)", key.compiler.hex() + " (NVRTC 13.0)"}));
        } else {
            REQUIRE(differences.contains(row.field));
            CHECK(differences[row.field][1] == row.found);
        }
    }
}

TEST_CASE("a key alone tells of the entries that have its body, whole or by its start", "[service]") {
    World world;
    world.enter(0);
    world.install_compiler(1);
    require_ok(world.service()->prepare(plain_params()));
    CacheKey const key = only_key(world);
    std::string const body = key.body.hex();
    auto const same = world.service();
    for (std::string const& given : {body, body.substr(0, 6), body + "/" + key.compiler.hex()}) {
        json const document = explain(*same, nullptr, given);
        REQUIRE(document["kernels"].size() == 1);
        CHECK(document["kernels"][0]["result"] == "hit");
    }
    std::string const other(32, '2');
    json const elsewhere = explain(*same, nullptr, body + "/" + other)["kernels"][0];  // as another machine's log has it
    CHECK(contains(nearest_differences(elsewhere)["compiler"][0].get<std::string>(), other));

    world.install_compiler(2);
    auto const upgraded = world.service();
    json const missed = explain(*upgraded, nullptr, body)["kernels"][0];
    CHECK(nearest_differences(missed).size() == 1);
    CHECK(nearest_differences(missed).contains("compiler"));
    world.set("XQAJIT_COMPILER_MATCH", "any");
    json const any = explain(*world.service(), nullptr, body)["kernels"][0];
    CHECK(any["result"] == "hit");
    CHECK(any["served_by"] == body + "/" + key.compiler.hex());
    world.set("XQAJIT_COMPILER_MATCH", "exact");
    world.set("XQAJIT_NVRTC_PATH", "/nowhere");
    json const none = explain(*world.service(), nullptr, body)["kernels"][0];
    CHECK(contains(none["compiler_reason"].get<std::string>(), "/nowhere"));
    CHECK(nearest_differences(none)["compiler"][0].is_null());
}

TEST_CASE("a damaged entry of the wanted key is told of, and stays", "[service][J07]") {
    World world;
    world.enter(0);
    require_ok(world.service()->prepare(plain_params()));
    std::string const entry = world.cache_files().front();
    std::filesystem::resize_file(entry, 100);
    auto const service = world.service();
    json const kernel = only_kernel(*service, plain_params());
    CHECK(kernel["result"] == "unusable");
    CHECK(contains(kernel["error"].get<std::string>(), "length"));
    CHECK(kernel["nearest"].empty());
    CHECK(std::filesystem::exists(entry));
    CHECK(service->stats().quarantined == 0);
}

TEST_CASE("an empty cache has no nearest entry, and a shape with two kernels has both explained", "[service]") {
    World world;
    world.set("XQAJIT_PERF_GATE", "reference");
    XQAParams const params = plain_params();
    auto const service = world.service();
    json const document = explain(*service, &params);
    CHECK(document["exists"] == false);
    REQUIRE(document["kernels"].size() == 2);
    for (json const& kernel : document["kernels"]) {
        CHECK(kernel["result"] == "miss");
        CHECK(kernel["nearest"].empty());
    }
    std::string const second = document["kernels"][1]["key"];
    CHECK(explain(*service, &params, second.substr(0, 12))["kernels"] == json({document["kernels"][1]}));
    CHECK_FALSE(std::filesystem::exists(world.cache_dir()));
}

TEST_CASE("a key that is none, or nobody's, and a shape that is refused say so", "[service]") {
    World world;
    auto const service = world.service();
    XQAParams const params = plain_params();
    XQAParams refused = params;
    refused.chunked_attention = 512;
    struct Row {
        std::string key;
        XQAParams const* params;
        xqajit_status code;
        char const* named;
    };
    for (Row const& row : {Row{"", nullptr, XQAJIT_INVALID_ARGUMENT, "one is needed"},
                           Row{"xyz", &params, XQAJIT_INVALID_ARGUMENT, "'xyz': accepted are"},
                           Row{"AB", &params, XQAJIT_INVALID_ARGUMENT, "lower-case"},
                           Row{std::string(33, 'a'), &params, XQAJIT_INVALID_ARGUMENT, "accepted are"},
                           Row{"ab/", &params, XQAJIT_INVALID_ARGUMENT, "accepted are"},
                           Row{std::string(32, 'a') + "/b", nullptr, XQAJIT_INVALID_ARGUMENT, "accepted are"},
                           Row{std::string(32, 'a'), nullptr, XQAJIT_INVALID_ARGUMENT, "give the shape"},
                           Row{std::string(32, 'a'), &params, XQAJIT_INVALID_ARGUMENT, "no kernel of the shape"},
                           Row{"", &refused, XQAJIT_UNSUPPORTED, "chunked_attention"}}) {
        INFO(row.key);
        Status const status = service->cache_explain_miss(row.key, row.params, "sm_90a").status();
        CHECK(status.code() == row.code);
        CHECK(contains(status.message(), row.named));
    }
    CHECK(service->cache_explain_miss("", &params, "sm_19").status().code() == XQAJIT_INVALID_ARGUMENT);
    world.write("a-file", "");
    world.set("XQAJIT_CACHE_DIR", world.folder() + "/a-file");
    CHECK(world.service()->cache_explain_miss("", &params, "sm_90a").status().code() == XQAJIT_UNAVAILABLE);
}

}  // namespace xqajit
