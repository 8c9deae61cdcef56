#include "cache/signature.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/file.h"
#include "cache/directory.h"

#ifdef XQAJIT_HAS_CRYPTO
#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/opensslv.h>
#endif

namespace xqajit::cache {
namespace {

#ifdef XQAJIT_HAS_CRYPTO
#define XQAJIT_TEXT2(x) #x
#define XQAJIT_TEXT(x) XQAJIT_TEXT2(x)
constexpr char kLibrary[] = "libcrypto.so." XQAJIT_TEXT(OPENSSL_SHLIB_VERSION);

// Opened when a signature is first needed, as libcuda and libnvrtc are: who signs nothing needs no libcrypto.
struct Crypto {
    decltype(&::HMAC) hmac = nullptr;
    decltype(&::EVP_sha256) sha256 = nullptr;
    std::string error;

    static Crypto const& get() {
        static Crypto const crypto = open();
        return crypto;
    }

private:
    static Crypto open() {
        Crypto crypto;
        void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed: it registers exit handlers
        if (library != nullptr) {
            crypto.hmac = reinterpret_cast<decltype(&::HMAC)>(::dlsym(library, "HMAC"));
            crypto.sha256 = reinterpret_cast<decltype(&::EVP_sha256)>(::dlsym(library, "EVP_sha256"));
        }
        if (crypto.hmac == nullptr || crypto.sha256 == nullptr) {
            char const* const why = ::dlerror();
            crypto.error = fmt::format("signatures need {}: {}", kLibrary, why == nullptr ? "it lacks HMAC or EVP_sha256" : why);
        }
        return crypto;
    }
};
#endif

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned char volatile difference = 0;  // volatile: no early end
    for (std::size_t i = 0; i < a.size(); ++i) difference = difference | (a[i] ^ b[i]);
    return difference == 0;
}

std::string why_not_secret(struct stat const& file) {
    if (std::string reason = distrust(file); !reason.empty()) return reason;
    mode_t const readers = file.st_mode & (S_IRGRP | S_IROTH);
    if ((readers & S_IROTH) != 0 || (readers != 0 && file.st_uid != 0)) {
        return fmt::format("has mode {:04o}: nobody but its owner may read it{}", file.st_mode & 07777,
                           file.st_uid == 0 ? ", or root's group" : "");
    }
    return {};
}

}  // namespace

#ifdef XQAJIT_HAS_CRYPTO
Result<std::string> hmac_sha256(std::string_view key, std::string_view bytes) {
    Crypto const& crypto = Crypto::get();
    if (!crypto.error.empty()) return unavailable(crypto.error);
    std::string code(kSignatureBytes, '\0');
    unsigned int size = 0;
    auto* const out = reinterpret_cast<unsigned char*>(code.data());
    auto const* const in = reinterpret_cast<unsigned char const*>(bytes.data());
    if (crypto.hmac(crypto.sha256(), key.data(), static_cast<int>(key.size()), in, bytes.size(), out, &size) == nullptr ||
        size != code.size())
        return Status(XQAJIT_INTERNAL, fmt::format("{} computed no HMAC-SHA-256", kLibrary));
    return code;
}
#else
Result<std::string> hmac_sha256(std::string_view, std::string_view) {
    return unavailable("this build has no signatures: it was configured without OpenSSL's headers, or with -DXQAJIT_CRYPTO=OFF");
}
#endif

// A link is followed: secrets are often mounted as one. What counts is who owns and may read what is opened.
Result<SigningKey> SigningKey::read(std::string const& path) {
    std::string const what = "key file " + path;
    UniqueFd file = above_standard(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file.valid()) return unavailable(what + ": " + errno_text(errno));
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) return unavailable(what + ": " + errno_text(errno));
    if (!S_ISREG(facts.st_mode)) return invalid_argument(what + " is not a regular file");
    if (std::string const reason = why_not_secret(facts); !reason.empty()) return invalid_argument(what + " " + reason);
    Result<std::string> key = read_open_file(std::move(file), what, kMaxKeyBytes);
    if (!key.ok()) return key.status();
    if (key->size() < kMinKeyBytes)
        return invalid_argument(fmt::format("{} has {} bytes: accepted are {}..{}", what, key->size(), kMinKeyBytes, kMaxKeyBytes));
    return SigningKey(path, std::move(*key));
}

Result<std::string> SigningKey::sign(std::string_view entry) const { return hmac_sha256(key_, entry); }

Status SigningKey::verify(std::string_view entry, std::string_view signature) const {
    Result<std::string> const expected = sign(entry);
    if (!expected.ok()) return expected.status();
    if (equal_in_constant_time(*expected, signature)) return {};
    return {XQAJIT_CACHE_CORRUPT, "signature is not that of key file " + path_};
}

}  // namespace xqajit::cache
