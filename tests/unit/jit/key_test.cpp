#include <map>

#include "jit/compiler.h"
#include "support.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

// Names every member of KernelSpec: a new one does not build until it is listed here, and then fails the test below until it has a macro.
template <class Visit> void for_each_member(KernelSpec& spec, Visit&& visit) {
    auto& [family, target, q_dtype, kv_dtype, out_dtype, numeric, head_dim, head_dim_v, group_size, beam_width, page_size, spec_dec,
           m_tile, mla, has_window, has_softcap, has_sinks, has_lse, input_kv, rope_style, rotary_dim, skip_softmax] = spec;
    visit("family", family);
    visit("target", target);
    visit("q_dtype", q_dtype);
    visit("kv_dtype", kv_dtype);
    visit("out_dtype", out_dtype);
    visit("numeric", numeric);
    visit("head_dim", head_dim);
    visit("head_dim_v", head_dim_v);
    visit("group_size", group_size);
    visit("beam_width", beam_width);
    visit("page_size", page_size);
    visit("spec_dec", spec_dec);
    visit("m_tile", m_tile);
    visit("mla", mla);
    visit("has_window", has_window);
    visit("has_softcap", has_softcap);
    visit("has_sinks", has_sinks);
    visit("has_lse", has_lse);
    visit("input_kv", input_kv);
    visit("rope_style", rope_style);
    visit("rotary_dim", rotary_dim);
    visit("skip_softmax", skip_softmax);
}

void change(Family& family) { family = family == Family::kMmha ? Family::kHmma : Family::kMmha; }
void change(std::string& target) { target = "sm_80"; }
void change(bool& flag) { flag = !flag; }
void change(std::int32_t& number) { ++number; }
void change(std::uint32_t& number) { ++number; }

CompileRequest request_of(KernelSpec const& spec) { return {spec.family, spec.target, macros_for(spec)}; }

}  // namespace

TEST_CASE("a change of any one member of KernelSpec changes the key", "[jit][J10]") {
    Digest const compiler = digest_of("compiler");
    KernelSpec spec = sample_spec();
    std::map<Digest, std::string> seen{{key_for(request_of(spec), compiler).body, "unchanged"}};
    int members = 0;
    for_each_member(spec, [&](char const*, auto&) { ++members; });
    for (int which = 0; which < members; ++which) {
        KernelSpec changed = sample_spec();
        int index = 0;
        std::string name;
        for_each_member(changed, [&](char const* member, auto& value) {
            if (index++ != which) return;
            change(value);
            name = member;
        });
        auto const [entry, is_new] = seen.emplace(key_for(request_of(changed), compiler).body, name);
        INFO(name << " has the key of " << entry->second);
        CHECK(is_new);
    }
}

TEST_CASE("the compiler is the second part of the key and leaves the first alone", "[jit]") {
    auto const request = request_of(sample_spec());
    CacheKey const a = key_for(request, digest_of("13.0")), b = key_for(request, digest_of("12.4"));
    CHECK(a.body == b.body);
    CHECK(a.compiler == digest_of("13.0"));
    CHECK(b.compiler == digest_of("12.4"));
}

TEST_CASE("the key's text lists every field that is hashed", "[jit]") {
    auto const request = request_of(sample_spec());
    std::string const text = key_text(request);
    for (auto const& [name, value] : request.macros.macros) CHECK(contains(text, name + "=" + value));
    for (auto const& option : keyed_options(request.target)) CHECK(contains(text, option));
    for (std::string const field : {"family=mmha", "target=sm_90a", "format="}) CHECK(contains(text, field));
    CHECK(contains(text, source_digest(Family::kMmha).hex()));
}

TEST_CASE("no option of the key names a path or turns the compiler's own cache off", "[jit][J15]") {
    for (auto const& option : keyed_options("sm_90a")) {
        CHECK(!contains(option, "/"));
        CHECK(!option.starts_with("-I"));
        CHECK(!contains(option, "include"));
        CHECK(option != "--no-cache");
    }
}
