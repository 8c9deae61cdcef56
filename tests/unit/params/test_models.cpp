// The bundled list of real models.
#include <map>
#include <set>
#include <string>

#include "base/file.h"
#include "catch.h"
#include "params/shape_list.h"

using namespace xqajit;

namespace {

std::vector<ShapeEntry> models() {
    auto const text = read_file(XQAJIT_MODELS_JSON, 1 << 20);
    REQUIRE(text.ok());
    auto const list = parse_shape_list(*text);
    CAPTURE(list.status().message());
    REQUIRE(list.ok());
    return *list;
}

}  // namespace

TEST_CASE("the bundled list parses to every combination of every model", "[params][models]") {
    auto const entries = models();
    std::map<std::string, int> counts;
    for (ShapeEntry const& entry : entries) ++counts[entry.name];
    CHECK(counts.size() == 51);
    CHECK(entries.size() == 171);
    // Three KV types; twice that where layers with and without a window alternate; MLA has no int8.
    CHECK(counts["llama-3.1-8b"] == 3);
    CHECK(counts["mistral-7b-v0.1"] == 3);
    CHECK(counts["gemma-2-27b"] == 6);
    CHECK(counts["gpt-oss-120b"] == 6);
    CHECK(counts["deepseek-v3"] == 2);
}

TEST_CASE("the bundled list covers what real models ask for", "[params][models]") {
    std::set<std::uint32_t> dims, groups;
    std::set<std::int32_t> kv_dtypes;
    bool window = false, softcap = false, sinks = false, own_scale = false;
    for (ShapeEntry const& entry : models()) {
        XQAParams const& p = entry.params;
        CHECK(validate(p).ok());
        dims.insert(p.head_dim);
        groups.insert(p.num_q_heads / p.num_kv_heads);
        kv_dtypes.insert(p.kv_dtype);
        window |= p.sliding_window != 0;
        softcap |= p.softcap != 0;
        sinks |= p.sinks != 0;
        own_scale |= entry.name == "gemma-2-27b" && p.qk_scale == 0.08333333333333333f;
    }
    CHECK(dims == std::set<std::uint32_t>{64, 80, 96, 128, 160, 192, 256, 576});
    for (std::uint32_t const group : {1u, 4u, 5u, 7u, 8u, 29u, 71u, 128u}) CHECK(groups.count(group) == 1);
    CHECK(kv_dtypes == std::set<std::int32_t>{XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8});
    CHECK((window && softcap && sinks && own_scale));
}
