#include <nlohmann/json.hpp>

#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

json capabilities(Service& service, char const* arch, Family wanted) {
    json const document = json::parse(must(service.capabilities(arch)));
    for (json const& family : document["families"])
        if (family["family"] == family_name(wanted)) return family;
    return nullptr;
}

}  // namespace

TEST_CASE("capabilities are what the library then accepts", "[service][A01][A02][A09]") {
    World world;
    auto const service = world.service();
    json const mmha = capabilities(*service, "sm_90a", Family::kMmha);
    json const& decode = mmha["decode"];
    REQUIRE(mmha["built"] == true);
    auto const accepted = [&](char const* list, std::uint32_t last, auto const& set) {
        json expected = json::array();
        for (std::uint32_t value = 0; value <= last; ++value) {
            XQAParams params = plain_params();
            params.num_kv_heads = 1;
            params.num_q_heads = 8;
            set(params, value);
            if (service->supports(params, "sm_90a").ok()) expected.push_back(value);
        }
        CHECK(decode[list] == expected);
        CHECK(expected.size() > 1);
    };
    accepted("page_sizes", 2048, [](XQAParams& p, std::uint32_t v) { p.page_size = v; });
    accepted("head_dims", 640, [](XQAParams& p, std::uint32_t v) { p.head_dim = v; });
    CHECK(decode["page_sizes"] == json({0, 8, 16, 32, 64, 128, 256, 512, 1024}));
    CHECK(decode["head_dims"].size() == 16);
    CHECK(decode["group_sizes"].size() == 128);
    CHECK(decode["beam_widths"].size() == 8);
    CHECK(decode["drafts"]["ragged"] == true);
    CHECK(decode["drafts"]["linear"]["q_len"].size() == 64);
    CHECK(decode["drafts"]["tree"]["with_window"] == false);
    CHECK(decode["input_kv"] == false);
    CHECK(decode["divisions"] == json({"static", "balanced", "invariant"}));
    CHECK(mmha["mla"]["divisions"] == decode["divisions"]);
    CHECK(mmha["mla"]["head_dims"] == json({576}));

    json const document = json::parse(must(service->capabilities("sm_90a")));
    CHECK(document["schema"] == "xqajit.capabilities/1");
    for (json const& family : document["families"]) {
        bool const built = family["family"] != "mla";
        CHECK(family["built"] == built);
        CHECK(family["decode"].is_null() == !built);
        CHECK(family["mla"].is_null() == (family["family"] != "mmha"));
    }
}

TEST_CASE("hmma's capabilities are the shapes that it serves by choice", "[service][A01][A02]") {
    World world;
    for (char const* arch : {"sm_80", "sm_90a", "sm_120f"}) {
        INFO(arch);
        json const decode = capabilities(*world.service(), arch, Family::kHmma)["decode"];
        CHECK(decode["page_sizes"] == json({0, 8, 16, 32, 64, 128}));
        CHECK(decode["head_dims"].size() == 16);
        REQUIRE(decode["group_sizes"].size() == 127);  // 1 is mmha's
        CHECK(decode["group_sizes"][0] == 2);
        CHECK(decode["beam_widths"].size() == 8);
        CHECK(decode["divisions"] == json({"static", "balanced", "invariant"}));
        CHECK(decode["drafts"]["linear"]["q_len"].size() == 64);
        CHECK(decode["drafts"]["tree"]["q_len"].size() == 64);
        CHECK(decode["drafts"]["ragged"] == true);
        for (char const* feature : {"sliding_window", "softcap", "sinks", "lse"}) CHECK(decode[feature] == true);
        for (char const* feature : {"input_kv", "skip_softmax", "numeric_fp8"}) CHECK(decode[feature] == false);
    }
}

TEST_CASE("gmma's capabilities are the shapes that it serves by choice, on sm_90a alone", "[service][A01][A02]") {
    World world;
    for (char const* arch : {"sm_80", "sm_100a", "sm_120f"})
        CHECK(capabilities(*world.service(), arch, Family::kGmma)["decode"].is_null());
    json const decode = capabilities(*world.service(), "sm_90a", Family::kGmma)["decode"];
    CHECK(decode["page_sizes"] == json({0, 8, 16, 32, 64, 128}));
    CHECK(decode["head_dims"] == json({32, 64, 128, 192, 256}));  // of whole lines, or half a one
    REQUIRE(decode["group_sizes"].size() == 127);                 // 1 is mmha's
    CHECK(decode["group_sizes"][0] == 2);
    CHECK(decode["beam_widths"] == json({1}));
    CHECK(decode["divisions"] == json({"static", "balanced", "invariant"}));
    CHECK(decode["dtypes"] == capabilities(*world.service(), "sm_90a", Family::kHmma)["decode"]["dtypes"]);
    CHECK(decode["drafts"]["linear"]["q_len"].size() == 64);
    CHECK(decode["drafts"]["tree"]["q_len"].size() == 64);
    CHECK(decode["drafts"]["ragged"] == true);
    for (char const* feature : {"sliding_window", "softcap", "sinks", "lse", "input_kv", "skip_softmax", "numeric_fp8"})
        CHECK(decode[feature] == true);
}

}  // namespace xqajit
