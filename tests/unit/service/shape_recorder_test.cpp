#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "params/fields.h"
#include "params/shape_list.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;

XQAParams shape_of(std::uint32_t head_dim) {
    XQAParams params = plain_params();
    params.head_dim = head_dim;
    return must(normalize(params));
}

bool same_shape(XQAParams const& a, XQAParams const& b) {
    return std::all_of(params_fields().begin(), params_fields().end(),
                       [&](Field const& field) { return equal_value(field, a, b); });
}

// A world whose services record into path().
struct Recording : World {
    Recording() {
        std::filesystem::create_directory(folder() + "/record");
        set("XQAJIT_RECORD_SHAPES", path());
        enter(0);
    }
    std::string path() const { return folder() + "/record/shapes.json"; }
    std::vector<ShapeEntry> recorded() const { return must(parse_shape_list(read(path()))); }
};

// Some value of the field that plain_params() does not have, as JSON.
std::string other_value(Field const& field) {
    if (!field.names.empty()) return "\"" + std::string(field.names.back()) + "\"";
    return is_flag(field) ? "1" : "3";
}

}  // namespace

TEST_CASE("recorded shapes are a shape list without duplicates, shared by processes", "[service]") {
    Recording world;
    XQAParams windowed = plain_params();
    windowed.sliding_window = 128;
    for (int process = 0; process < 2; ++process) {
        auto const service = world.service();
        require_ok(service->prepare(plain_params()));
        require_ok(service->prepare(plain_params()));
        require_ok(service->prepare(windowed));
    }
    std::vector<ShapeEntry> const entries = world.recorded();
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].params.sliding_window == 0);
    CHECK(entries[1].params.sliding_window == 128);
    CHECK(entries[0].params.head_dim == 128);
}

TEST_CASE("a shape that a list already means, in whatever words, is not added", "[service]") {
    Recording world;
    std::string const list = R"({"version": 1, "defaults": {"q_dtype": "bf16", "page_size": [32, 64]}, "shapes": [
      {"num_q_heads": 64, "num_kv_heads": 16, "tp": 2, "head_dim": 128}]})";
    world.write("record/shapes.json", list);
    require_ok(world.service()->prepare(plain_params()));
    CHECK(world.read(world.path()) == list);
}

TEST_CASE("a recorded shape keeps its meaning under any default of the list", "[service]") {
    std::vector<std::pair<std::string, std::string>> defaults = {{"name", R"(["a", "b"])"}, {"tp", "[2, 4]"}};
    for (Field const& field : params_fields()) {
        defaults.emplace_back(field.name, other_value(field));
        defaults.emplace_back(field.name, "[" + other_value(field) + ", " + other_value(field) + "]");
    }
    for (auto const& [key, value] : defaults) {
        INFO(key << ": " << value);
        Recording world;
        world.write("record/shapes.json", R"({"version": 1, "defaults": {")" + key + "\": " + value + R"(}, "shapes": []})");
        require_ok(world.service()->prepare(plain_params()));
        std::vector<ShapeEntry> const entries = world.recorded();
        REQUIRE(entries.size() == 1);
        CHECK(same_shape(entries[0].params, shape_of(128)));
    }
}

TEST_CASE("an empty record is a fresh one, and a list that can't be read is left as it is with one warning", "[service]") {
    std::string const shape = R"({"q_dtype": "bf16", "num_q_heads": 32, "num_kv_heads": 8, "head_dim": 64})";
    struct Row {
        std::string text;
        char const* reason;  // null: the list is added to
    };
    for (Row const& row : {Row{"", nullptr},
                           {"\n", nullptr},
                           {R"({"version": 1, "shapes": []})", nullptr},
                           {R"({"version": 1, "defaults": {"page_size": 32}, "shapes": []})", nullptr},
                           {R"({"version": 1, "shapes": [)" + shape + "]}", nullptr},
                           {"precious", "line 1"},
                           {"[]", "shape list"},
                           {"{}", "version is missing"},
                           {R"({"shapes": []})", "version is missing"},
                           {R"({"shapes": [)" + shape + "]}", "version is missing"},
                           {R"({"version": 2, "shapes": []})", "version is 2"},
                           {R"({"version": 2, "shapes": [)" + shape + "]}", "version is 2"},
                           {R"({"version": 1, "shapes": {}})", "shapes is"},
                           {R"({"version": 1, "shapes": [], "other": 1})", "other"},
                           {R"({"version": 1, "defaults": 1, "shapes": []})", "defaults is 1"},
                           {R"({"version": 1, "shapes": [{"head_dim": 64}]})", "missing"},
                           {R"({"version": 1, "shapes": [)", "line 1"}}) {
        INFO(row.text);
        Recording world;
        world.write("record/shapes.json", row.text);
        auto const service = world.service();
        for (std::uint32_t const head_dim : {128u, 256u}) require_ok(service->prepare(shape_of(head_dim)));
        std::vector<std::string> const warnings = world.logged("XQAJIT_RECORD_SHAPES");
        if (row.reason == nullptr) {
            CHECK(warnings.empty());
            std::vector<ShapeEntry> const entries = world.recorded();
            REQUIRE(entries.size() >= 2);
            CHECK(same_shape(entries[entries.size() - 2].params, shape_of(128)));
            CHECK(same_shape(entries.back().params, shape_of(256)));
        } else {
            CHECK(world.read(world.path()) == row.text);
            REQUIRE(warnings.size() == 1);
            CHECK(contains(warnings.front(), world.path()));
            CHECK(contains(warnings.front(), row.reason));
        }
    }
}

TEST_CASE("what the process asked for is recorded though it was refused or did not compile, if it is a shape", "[service]") {
    Recording world;
    XQAParams refused = plain_params();
    refused.chunked_attention = 512;
    XQAParams invalid = plain_params();
    invalid.head_dim = 72;
    world.set("FAKE_NVRTC_FAIL", "kernel.cu(1): error: no luck today");
    CHECK(world.service()->prepare(plain_params()).code() == XQAJIT_COMPILE_FAILED);
    CHECK(world.service()->prepare(refused).code() == XQAJIT_UNSUPPORTED);
    CHECK(world.service()->prepare(invalid).code() == XQAJIT_INVALID_ARGUMENT);
    world.set("XQAJIT_ON_MISS", "refuse");
    Launch const launch(shape_of(64), 1);
    CHECK(world.service()->run(launch.params, launch.args, nullptr).code() == XQAJIT_NOT_PREPARED);

    std::vector<ShapeEntry> const entries = world.recorded();
    REQUIRE(entries.size() == 3);
    CHECK(same_shape(entries[0].params, shape_of(128)));
    CHECK(entries[1].params.chunked_attention == 512);
    CHECK(same_shape(entries[2].params, shape_of(64)));
}

TEST_CASE("whoever holds the record's lock holds up no launch, and no shape is lost", "[service]") {
    Recording world;
    auto const service = world.service();
    {
        UniqueFd const other(::open((world.folder() + "/record").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        REQUIRE(::flock(other.get(), LOCK_EX) == 0);
        require_ok(service->prepare(shape_of(64)));
        require_ok(service->prepare(shape_of(128)));
        CHECK_FALSE(std::filesystem::exists(world.path()));
        REQUIRE(world.logged("XQAJIT_RECORD_SHAPES").size() == 1);
        CHECK(contains(world.logged("XQAJIT_RECORD_SHAPES").front(), world.path()));
        CHECK(contains(world.logged("XQAJIT_RECORD_SHAPES").front(), "locked"));
    }
    require_ok(service->prepare(shape_of(256)));
    std::vector<ShapeEntry> const entries = world.recorded();
    REQUIRE(entries.size() == 3);
    CHECK(same_shape(entries[0].params, shape_of(64)));
    CHECK(same_shape(entries[2].params, shape_of(256)));
}

}  // namespace xqajit
