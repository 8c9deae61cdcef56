#include "base/url.h"

#include <charconv>
#include <optional>

namespace xqajit {
namespace {

constexpr std::string_view kSchemes[] = {"http://", "https://"};
constexpr std::size_t kMostBytes = 2048;

Status refused(std::string_view text) {
    return invalid_argument("'" + without_credentials(text) + "': accepted is " + kAcceptedUrls);
}

bool is_graphic(std::string_view text) {
    for (char const c : text)
        if (c <= ' ' || c > '~') return false;
    return true;
}

std::optional<std::string> decoded(std::string_view text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            plain += text[i];
            continue;
        }
        unsigned value = 0;
        std::string_view const digits = text.substr(i + 1, 2);
        auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
        if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2 || value == 0) return std::nullopt;
        plain += static_cast<char>(value);
        i += 2;
    }
    return plain;
}

// "name", "name:port", "[::1]:port"
bool is_host(std::string_view host) {
    std::size_t const colon = host.starts_with('[') ? host.find(':', host.find(']')) : host.find(':');
    std::string_view const name = host.substr(0, colon);
    if (name.starts_with('[')) {
        if (name.size() < 4 || !name.ends_with(']')) return false;
        if (name.substr(1, name.size() - 2).find_first_not_of("0123456789abcdefABCDEF:.") != std::string_view::npos) return false;
    } else if (name.empty() || name.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._") !=
                                   std::string_view::npos) {
        return false;
    }
    if (colon == std::string_view::npos) return true;
    std::string_view const digits = host.substr(colon + 1);
    unsigned port = 0;
    auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    return error == std::errc() && end == digits.data() + digits.size() && port >= 1 && port <= 65535;
}

}  // namespace

Result<Url> Url::parse(std::string_view text) {
    std::string_view scheme;
    for (std::string_view const known : kSchemes)
        if (text.starts_with(known)) scheme = known;
    if (scheme.empty() || text.size() > kMostBytes || !is_graphic(text)) return refused(text);
    std::string_view const rest = text.substr(scheme.size());
    std::size_t const slash = rest.find('/');
    std::string_view authority = rest.substr(0, slash);
    std::string_view path = slash == std::string_view::npos ? "" : rest.substr(slash);
    if (rest.find_first_of("?#\\") != std::string_view::npos || path.find('@') != std::string_view::npos) return refused(text);
    while (path.ends_with('/')) path.remove_suffix(1);

    Url url;
    if (std::size_t const at = authority.find('@'); at != std::string_view::npos) {
        std::string_view const credentials = authority.substr(0, at);
        authority.remove_prefix(at + 1);
        std::size_t const colon = credentials.find(':');
        std::optional<std::string> user = decoded(credentials.substr(0, colon));
        std::optional<std::string> password =
            colon == std::string_view::npos ? std::optional<std::string>("") : decoded(credentials.substr(colon + 1));
        if (!user || user->empty() || user->find(':') != std::string::npos || !password) return refused(text);
        url.has_credentials = true;
        url.user = std::move(*user);
        url.password = std::move(*password);
    }
    if (!is_host(authority)) return refused(text);
    url.base = std::string(scheme) + std::string(authority) + std::string(path);
    return url;
}

std::string without_credentials(std::string_view text) {
    std::size_t const colon = text.find("://");
    std::size_t begin = colon == std::string_view::npos ? 0 : colon + 3;
    if (text.substr(0, colon).find_first_of("@:/") != std::string_view::npos) begin = 0;  // no scheme
    std::size_t const at = text.rfind('@');
    bool const has_credentials = at != std::string_view::npos && at >= begin;
    std::string shown(text.substr(0, begin));
    if (has_credentials) shown += "***@";
    std::string_view const rest = text.substr(has_credentials ? at + 1 : begin);
    std::size_t const query = rest.find_first_of("?#");
    shown += rest.substr(0, query);
    return query == std::string_view::npos ? shown : shown + "?***";
}

}  // namespace xqajit
