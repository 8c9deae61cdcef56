#include "jit/macros.h"

#include <algorithm>
#include <set>

#include "support.h"

using namespace xqajit;
using namespace xqajit::test;

TEST_CASE("every macro has the project's prefix and the table is sorted without repetition", "[jit]") {
    std::set<std::string> names;
    std::string before;
    for (auto const& definition : macro_table()) {
        std::string const name = definition.name;
        CHECK(name.starts_with("XQAJIT_"));
        CHECK(before < name);
        before = name;
        names.insert(name);
    }
    CHECK(names.size() == macro_table().size());
}

TEST_CASE("a macro's value is the field's", "[jit]") {
    KernelSpec spec = sample_spec();
    spec.has_sinks = true;
    spec.rotary_dim = 64;
    auto const value = [set = macros_for(spec)](std::string const& name) {
        auto const found =
            std::find_if(set.macros.begin(), set.macros.end(), [&](auto const& macro) { return macro.first == name; });
        return found == set.macros.end() ? std::string("missing") : found->second;
    };
    CHECK(value("XQAJIT_HEAD_DIM") == "128");
    CHECK(value("XQAJIT_KV_DTYPE") == "3");
    CHECK(value("XQAJIT_HAS_SINKS") == "1");
    CHECK(value("XQAJIT_HAS_WINDOW") == "0");
    CHECK(value("XQAJIT_ROTARY_DIM") == "64");
    CHECK(value("XQAJIT_PAGE_SIZE") == "32");
}

TEST_CASE("a macro set prints as options and as JSON", "[jit]") {
    MacroSet const set{{{"XQAJIT_A", "1"}, {"XQAJIT_B", "20"}}};
    CHECK(set.to_string() == "-DXQAJIT_A=1 -DXQAJIT_B=20");
    CHECK(set.to_json() == R"({"XQAJIT_A": "1", "XQAJIT_B": "20"})");
    CHECK(MacroSet{}.to_json() == "{}");
}
