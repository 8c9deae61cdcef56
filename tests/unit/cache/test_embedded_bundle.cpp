// With the bundle of make_bundle.cpp in it, as -DXQAJIT_EMBED_BUNDLE puts one into the library.
#include "cache/embedded_bundle.h"

#include "cache/layers.h"
#include "catch.h"
#include "unit/cache/bundle_fixture.h"

using namespace xqajit::cache;
using namespace xqajit::cache::test;

TEST_CASE("an embedded bundle is there byte for byte, and its entries are found in the last layer", "[cache][layers]") {
    CHECK(embedded_bundle() == read_raw(EMBEDDED_BUNDLE));
    Layers const layers("", embedded_bundle());
    REQUIRE(layers.states().size() == 1);
    CHECK(layers.states()[0].entries == 2);
    for (int const number : {1, 2}) {
        std::optional<LayerEntry> const found = layers.load(sample_key(number));
        REQUIRE(found);
        CHECK(same(found->entry, sample_entry(number)));
    }
    CHECK_FALSE(layers.load(sample_key(3)));
}
