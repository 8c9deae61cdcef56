// The URL of an HTTP server, as a setting gives it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace xqajit {

inline constexpr char kAcceptedUrls[] = "http://[user:password@]host[:port][/path], or https://...";

struct Url {
    std::string base;  // "https://host:port/path", without credentials and without a slash at its end
    bool has_credentials = false;
    std::string user;  // with its percent-escapes decoded, as the password
    std::string password;

    // INVALID_ARGUMENT has no part of the text that may be a credential: another scheme, no host, a port outside 1..65535, a query, a fragment, a
    // blank, a control character or an '@' in the path.
    static Result<Url> parse(std::string_view text);
};

// The text, legal or not, without what may be credentials: all before its last '@' but the scheme, and a query or fragment.
std::string without_credentials(std::string_view text);

}  // namespace xqajit
