// Catch2 2.13 and 3 alike.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <cstdio>
#include <cstdlib>

// Ends the process with CTest's skip code: only for a test case that runs alone in its process, as CTest runs it.
[[noreturn]] inline void skip_test(char const* why) {
    std::printf("skipped: %s\n", why);
    std::fflush(stdout);
    std::_Exit(77);
}
