#include "jit/source_bundle.h"

#include <algorithm>

#include "jit/embedded_sources.h"
#include "select/select.h"
#include "support.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

std::vector<std::string> names_of(std::vector<Source> const& sources) {
    std::vector<std::string> names;
    for (auto const& source : sources) names.emplace_back(source.name);
    return names;
}

}  // namespace

TEST_CASE("a closure holds what the entry includes, directly or not, each file once and the entry first", "[jit]") {
    std::vector<Source> const sources = {{"common/a.h", "#pragma once\n"},
                                         {"common/b.cuh", "  #  include \"common/a.h\"\n"},
                                         {"gmma/kernel.cu", "#include \"common/a.h\""},
                                         {"mmha/config.cuh", "#include \"common/b.cuh\"\n#include \"mmha/config.cuh\"\n"},
                                         {"mmha/kernel.cu", "// text\n#include \"mmha/config.cuh\"\n#include \"common/a.h\"\n"}};
    CHECK(names_of(closure_of(sources, "mmha/kernel.cu")) ==
          std::vector<std::string>{"mmha/kernel.cu", "common/a.h", "common/b.cuh", "mmha/config.cuh"});
    CHECK(names_of(closure_of(sources, "gmma/kernel.cu")) == std::vector<std::string>{"gmma/kernel.cu", "common/a.h"});
    CHECK(closure_of(sources, "mla/kernel.cu").empty());
}

TEST_CASE("one byte of a source changes the digest of the closures that hold it and of no other", "[jit][J08]") {
    std::string const names[] = {"common/a.h", "common/b.h", "gmma/kernel.cu", "mmha/kernel.cu"};
    std::string const texts[] = {"int a;", "int b;", "#include \"common/a.h\"\n",
                                 "#include \"common/a.h\"\n#include \"common/b.h\"\n"};
    auto const digests = [&](int changed) {
        std::vector<std::string> copy(std::begin(texts), std::end(texts));
        if (changed >= 0) copy[static_cast<std::size_t>(changed)] += " ";
        std::vector<Source> sources;
        for (std::size_t i = 0; i < copy.size(); ++i) sources.push_back({names[i], copy[i]});
        return std::pair(digest_of_sources(closure_of(sources, "gmma/kernel.cu")),
                         digest_of_sources(closure_of(sources, "mmha/kernel.cu")));
    };
    auto const [gmma, mmha] = digests(-1);
    bool const in_gmma[] = {true, false, true, false};
    bool const in_mmha[] = {true, true, false, true};
    for (int i = 0; i < 4; ++i) {
        INFO(names[i]);
        auto const [changed_gmma, changed_mmha] = digests(i);
        CHECK((changed_gmma != gmma) == in_gmma[i]);
        CHECK((changed_mmha != mmha) == in_mmha[i]);
    }
}

TEST_CASE("a file's name is part of the digest", "[jit]") {
    Source const a[] = {{"mmha/kernel.cu", "x"}}, b[] = {{"hmma/kernel.cu", "x"}};
    CHECK(digest_of_sources(a) != digest_of_sources(b));
}

TEST_CASE("the embedded sources are the files of kernel_src, sorted by name", "[jit]") {
    auto const sources = embedded_sources();
    REQUIRE(!sources.empty());
    CHECK(std::is_sorted(sources.begin(), sources.end(), [](Source const& a, Source const& b) { return a.name < b.name; }));
    for (Source const& source : sources) {
        INFO(source.name);
        CHECK(read_text(std::string(KERNEL_SRC) + "/" + std::string(source.name)) == source.text);
    }
}

TEST_CASE("selection counts a family as built exactly where its kernel is embedded", "[jit]") {
    for (Family const family : kFamilies) {
        INFO(family_name(family));
        CHECK(family_is_built(family) == family_has_kernel(family));
        CHECK(family_has_kernel(family) == !source_closure(family).empty());
        if (family_has_kernel(family)) CHECK(contains(std::string(source_closure(family)[0].text), kEntryName));
    }
}
