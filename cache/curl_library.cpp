#include "cache/curl_library.h"

#ifdef XQAJIT_HAS_CURL
#include <dlfcn.h>
#include <fmt/format.h>

namespace xqajit::cache {
namespace {

constexpr char kLibrary[] = "libcurl.so.4";
constexpr unsigned kOldest = CURL_VERSION_BITS(7, 85, 0);  // the first in which protocols are named by text

CurlLibrary open() {
    CurlLibrary curl;
    void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        char const* const why = ::dlerror();
        curl.error = fmt::format("a remote needs {}: {}", kLibrary, why == nullptr ? "it cannot be opened" : why);
        return curl;
    }
    auto const find = [&](auto& function, char const* name) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
        if (function == nullptr && curl.error.empty()) curl.error = fmt::format("a remote needs {}: it lacks {}", kLibrary, name);
    };
    find(curl.global_init, "curl_global_init");
    find(curl.version_info, "curl_version_info");
    find(curl.easy_init, "curl_easy_init");
    find(curl.easy_reset, "curl_easy_reset");
    find(curl.easy_setopt, "curl_easy_setopt");
    find(curl.easy_getinfo, "curl_easy_getinfo");
    find(curl.easy_strerror, "curl_easy_strerror");
    find(curl.easy_cleanup, "curl_easy_cleanup");
    find(curl.multi_init, "curl_multi_init");
    find(curl.multi_add_handle, "curl_multi_add_handle");
    find(curl.multi_remove_handle, "curl_multi_remove_handle");
    find(curl.multi_perform, "curl_multi_perform");
    find(curl.multi_poll, "curl_multi_poll");
    find(curl.multi_info_read, "curl_multi_info_read");
    find(curl.multi_cleanup, "curl_multi_cleanup");
    find(curl.slist_append, "curl_slist_append");
    find(curl.slist_free_all, "curl_slist_free_all");
    if (!curl.error.empty()) return curl;
    curl_version_info_data const* const version = curl.version_info(CURLVERSION_NOW);
    if (version->version_num < kOldest)
        curl.error = fmt::format("a remote needs {} of version 7.85 or later: it is {}", kLibrary, version->version);
    else if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        curl.error = fmt::format("a remote needs {}: it cannot be initialised", kLibrary);
    return curl;
}

}  // namespace

CurlLibrary const& CurlLibrary::get() {
    static CurlLibrary const curl = open();
    return curl;
}

}  // namespace xqajit::cache
#endif
