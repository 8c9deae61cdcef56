// make_bundle FILE: a bundle of two sample entries, for the build to embed.
#include "unit/cache/bundle_fixture.h"

int main(int argc, char** argv) {
    using namespace xqajit::cache::test;
    if (argc != 2) return 2;
    write_raw(argv[1], bundle_of(sample_entries({1, 2})));
    return 0;
}
