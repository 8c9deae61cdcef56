// The bundle that the library was built with, -DXQAJIT_EMBED_BUNDLE=FILE.
#pragma once

#include <string_view>

namespace xqajit::cache {

std::string_view embedded_bundle();  // its bytes; "" where there is none

}  // namespace xqajit::cache
