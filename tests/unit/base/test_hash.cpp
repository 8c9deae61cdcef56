#include "base/hash.h"

#include <set>
#include <utility>
#include <vector>

#include "catch.h"

using namespace xqajit;

namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

Digest tagged(Fields const& fields) {
    TaggedHash hash;
    for (auto const& [tag, value] : fields) hash.add(tag, value);
    return hash.digest();
}

}  // namespace

TEST_CASE("the digest is XXH3-128", "[base][hash]") {
    // The empty input's value is part of the algorithm's published specification.
    CHECK(digest_of(std::string_view()).hex() == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("field lists that concatenate alike have digests of their own", "[base][hash]") {
    std::vector<Fields> const lists{
        {},
        {{"", ""}},
        {{"-I", "-O2"}},
        {{"-I-O2", ""}},
        {{"", "-I-O2"}},
        {{"-I", ""}, {"-O2", ""}},
        {{"-I", ""}, {"", "-O2"}},
        {{"-O2", "-I"}},
        {{"a", "1"}, {"b", "2"}},
        {{"b", "2"}, {"a", "1"}},
        {{"a", "1\nb=2"}},
        {{"a", std::string("1\0", 2)}},
        {{"a", "1"}},
    };
    std::set<Digest> digests;
    for (Fields const& fields : lists) digests.insert(tagged(fields));
    CHECK(digests.size() == lists.size());
}

TEST_CASE("the text of a tagged hash has one line a field", "[base][hash]") {
    TaggedHash hash;
    hash.add("arch", "sm_90a");
    hash.add("log", "two\nlines");
    CHECK(hash.text() == "arch=sm_90a\nlog=two\\nlines\n");
}

TEST_CASE("a digest survives its hex form, and nothing else parses", "[base][hash]") {
    Digest const digest{0x0123456789abcdefULL, 0x00000000000000ffULL};
    CHECK(digest.hex() == "0123456789abcdef00000000000000ff");
    Digest parsed;
    REQUIRE(Digest::parse(digest.hex(), parsed));
    CHECK(parsed == digest);

    for (std::string const& bad :
         {std::string(), std::string(31, '0'), std::string(33, '0'), std::string(31, '0') + "g", "-" + std::string(31, '0'),
          "0x" + std::string(30, '0'), std::string(16, '0') + " " + std::string(15, '0')}) {
        CAPTURE(bad);
        CHECK_FALSE(Digest::parse(bad, parsed));
        CHECK(parsed == digest);
    }
}
