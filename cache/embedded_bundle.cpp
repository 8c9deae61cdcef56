#include "cache/embedded_bundle.h"

#ifdef XQAJIT_EMBED_BUNDLE
// The assembler takes the file as it is: no compiler has to read it.
asm(R"(
    .section .rodata
    .balign 16
    .hidden xqajit_embedded_bundle
    .hidden xqajit_embedded_bundle_end
    .global xqajit_embedded_bundle
    .global xqajit_embedded_bundle_end
xqajit_embedded_bundle:
    .incbin ")" XQAJIT_EMBED_BUNDLE R"("
xqajit_embedded_bundle_end:
    .byte 0
    .text
)");
extern "C" char const xqajit_embedded_bundle[];
extern "C" char const xqajit_embedded_bundle_end[];
#endif

namespace xqajit::cache {

std::string_view embedded_bundle() {
#ifdef XQAJIT_EMBED_BUNDLE
    return {xqajit_embedded_bundle, xqajit_embedded_bundle_end};
#else
    return {};
#endif
}

}  // namespace xqajit::cache
