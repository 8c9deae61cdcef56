// Command lines of the test programs: flags and --name value pairs, then positional words.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace xqajit::testing {

class Arguments {
public:
    // options: names that take a value; flags: names that take none. A word that is neither prints `usage` and makes ok() false.
    Arguments(int argc, char** argv, std::vector<std::string_view> const& options, std::vector<std::string_view> const& flags,
              char const* usage)
        : usage_(usage) {
        for (int n = 1; n < argc; ++n) {
            std::string_view const word = argv[n];
            if (contains(flags, word)) {
                values_.emplace(word, "");
            } else if (contains(options, word) && n + 1 < argc) {
                values_.emplace(word, argv[++n]);
            } else if (contains(options, word)) {
                fail(std::string(word) + " takes a value");
            } else if (word.starts_with("-")) {
                fail("unknown option " + std::string(word));
            } else {
                positional_.emplace_back(word);
            }
        }
    }

    bool ok() const { return ok_; }
    bool has(std::string_view name) const { return values_.contains(std::string(name)); }
    std::string text(std::string_view name, std::string fallback = {}) const {
        auto const found = values_.find(std::string(name));
        return found == values_.end() ? fallback : found->second;
    }
    // Prints `usage` and makes ok() false where the value is no number.
    std::uint64_t number(std::string_view name, std::uint64_t fallback) {
        if (!has(name)) return fallback;
        std::string const value = text(name);
        std::uint64_t result = 0;
        auto const [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
        if (error != std::errc() || end != value.data() + value.size())
            fail(std::string(name) + " is '" + value + "': a number is expected");
        return result;
    }
    std::vector<std::string> const& positional() const { return positional_; }
    void fail(std::string const& why) {
        if (ok_) std::fprintf(stderr, "%s\n%s\n", why.c_str(), usage_);
        ok_ = false;
    }

private:
    static bool contains(std::vector<std::string_view> const& names, std::string_view word) {
        for (std::string_view const name : names)
            if (name == word) return true;
        return false;
    }

    char const* usage_;
    std::map<std::string, std::string> values_;
    std::vector<std::string> positional_;
    bool ok_ = true;
};

}  // namespace xqajit::testing
