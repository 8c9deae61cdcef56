// The known word that a misspelt one most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace xqajit {

// By edit distance, case apart, two neighbours that changed places being one edit; "" where nothing is close (more than a third of the
// word would have to change).
std::string_view nearest(std::string_view word, std::span<std::string_view const> known);

// " (did you mean 'page_size'?)", or "" where nothing is close.
std::string did_you_mean(std::string_view word, std::span<std::string_view const> known);

}  // namespace xqajit
