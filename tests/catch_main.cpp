// Exit status 1 if anything failed: Catch2 2.13 returns the number of failed assertions, which might be the skip code.
#define CATCH_CONFIG_RUNNER
#include "catch.h"

int main(int argc, char** argv) {
    Catch::Session session;
#if CATCH_VERSION_MAJOR == 2
    // A name that matches no test is a failure, as it is in version 3: CTest's discovery splits names at semicolons, for one.
    session.configData().warnings = Catch::WarnAbout::NoTests;
#endif
    int const result = session.run(argc, argv);
#if CATCH_VERSION_MAJOR == 2
    if (session.configData().listTestNamesOnly) return result;  // the number of names, which CTest's discovery asks for
#endif
    return result == 0 ? 0 : 1;
}

// AddressSanitizer asks for its options here. LeakSanitizer finds the thread-local storage of libraries that were opened at run time by what
// it knows of the C library's layout, and crashes where that has changed; without this it does not look.
extern "C" [[gnu::visibility("default")]] char const* __asan_default_options();
extern "C" char const* __asan_default_options() { return "intercept_tls_get_addr=0"; }
