#include <array>
#include <cstdio>
#include <fstream>
#include <thread>

#include "cache/entry.h"
#include "jit/compiler.h"
#include "params/fields.h"
#include "service/counters.h"
#include "service/device_checks.h"
#include "service/prepared_key.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;

// Fields whose value, or whose value past zero, is a launch's business.
bool is_run_time(std::string const& name) { return name == "qk_scale" || name == "pdl" || name == "on_miss"; }
bool is_value(std::string const& name) {
    return name == "sliding_window" || name == "softcap" || name == "skip_softmax_threshold" || name == "nb_sub_seq";
}

void add_to(Field const& field, XQAParams& params, int amount) {
    std::visit([&](auto const member) { params.*member += static_cast<std::remove_reference_t<decltype(params.*member)>>(amount); },
               field.member);
}

}  // namespace

TEST_CASE("a prepared kernel is looked up by every field that shapes it, and by its context", "[service][J10]") {
    XQAParams const shape = must(normalize(plain_params()));
    PreparedKey const key = PreparedKey::of(shape, 7);
    CHECK(PreparedKey::of(shape, 7) == key);
    CHECK(PreparedKey::of(shape, 7).hash() == key.hash());
    CHECK_FALSE(PreparedKey::of(shape, 8) == key);
    CHECK_FALSE(PreparedKey::of(shape, 7 + (1ull << 32)) == key);
    for (Field const& field : params_fields()) {
        INFO(field.name);
        XQAParams other = shape;
        add_to(field, other, 1);
        PreparedKey const changed = PreparedKey::of(other, 7);
        CHECK((changed == key) == is_run_time(field.name));
        CHECK((changed.hash() == key.hash()) == is_run_time(field.name));
        add_to(field, other, 1);
        if (is_value(field.name)) CHECK(PreparedKey::of(other, 7) == changed);
    }
}

TEST_CASE("lengths that a launch can't hold are named", "[service]") {
    XQAParams const paged = must(normalize(plain_params()));
    XQAParams contiguous = paged;
    contiguous.page_size = 0;
    RunArgs args = XQAJIT_RUN_ARGS_INIT;
    args.max_pages = 2;
    args.capacity = 100;
    args.max_len = 90;
    args.q_len = 4;
    using Lengths = std::vector<std::int32_t>;
    CHECK(check_lengths(paged, args, Lengths{0, 90, 1}, {}).ok());
    CHECK(contains(check_lengths(paged, args, Lengths{91}, {}).message(), "seq_lens[0] is 91: max_len is 90"));
    args.max_len = 1000;
    CHECK(check_lengths(paged, args, Lengths{128}, {}).ok());
    CHECK(contains(check_lengths(paged, args, Lengths{1, 129}, {}).message(), "holds 128 tokens"));
    CHECK(contains(check_lengths(contiguous, args, Lengths{101}, {}).message(), "holds 100 tokens"));
    CHECK(contains(check_lengths(paged, args, Lengths{-1}, {}).message(), "seq_lens[0] is -1"));
    CHECK(check_lengths(paged, args, Lengths{9, 9, 9}, Lengths{0, 4, 4, 5}).ok());
    CHECK(contains(check_lengths(paged, args, Lengths{9, 9}, Lengths{0, 5, 6}).message(), "cu_q_len[1] - cu_q_len[0] is 5"));
    CHECK(contains(check_lengths(paged, args, Lengths{9, 9}, Lengths{0, 3, 2}).message(), "is -1"));
    CHECK(contains(check_lengths(paged, args, Lengths{9}, Lengths{1, 2}).message(), "cu_q_len[0] is 1"));
}

TEST_CASE("a striped counter loses nothing", "[service]") {
    StripedCounter counter;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 20; ++i) {
            threads.emplace_back([&] {
                for (int n = 0; n < 1000; ++n) counter.add();
            });
        }
    }
    CHECK(counter.total() == 20000);
}

TEST_CASE("the versions of entry and key are the last that the format's document tells of, and rise together", "[service]") {
    std::ifstream file(FORMAT_MD);
    std::vector<std::pair<unsigned, unsigned>> told;
    bool in_grammar = false;
    for (std::string line; std::getline(file, line);) {
        unsigned version = 0, key = 0;
        if (std::sscanf(line.c_str(), " | %u | %u |", &version, &key) == 2) told.emplace_back(version, key);
        if (std::sscanf(line.c_str(), " version = u32 ; %u", &version) == 1) in_grammar = version == cache::kEntryVersion;
    }
    CHECK(in_grammar);
    REQUIRE_FALSE(told.empty());
    CHECK(told.back().first == cache::kEntryVersion);
    CompileRequest request;
    request.target = "sm_90a";
    unsigned key = 0;
    REQUIRE(std::sscanf(key_text(request).c_str(), "format=%u\n", &key) == 1);
    CHECK(told.back().second == key);
    for (std::size_t i = 1; i < told.size(); ++i) {
        CHECK(told[i].first >= told[i - 1].first);
        CHECK(told[i].second > told[i - 1].second);
    }
}

}  // namespace xqajit
