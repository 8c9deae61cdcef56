// The table of settings: every XQAJIT_* variable the library reads, read once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace xqajit {

enum class SettingId {
    kCacheDir,
    kCacheMaxSize,
    kCacheKeyFile,
    kCacheLayers,
    kCacheCopyHits,
    kRemoteCache,
    kRemoteCacheWrite,
    kRemoteTimeout,
    kRemoteAllowUnsigned,
    kNvrtcPath,
    kArch,
    kForceKernel,
    kNumeric,
    kDivision,
    kNbSubSeq,
    kPdl,
    kPerfGate,
    kOnMiss,
    kCompile,
    kCompileTimeout,
    kLockTimeout,
    kWorker,
    kCompilerMatch,
    kRecordShapes,
    kDebug,
    kLogLevel,
    kCount
};

struct Setting {
    SettingId id;
    char const* name;           // "XQAJIT_ARCH"
    char const* type;           // "path", "url", "text", "list", "choice", "integer", "size", "flag"
    char const* default_value;  // as it would be written; "" where there is none
    char const* accepted;       // "off|reference", "1..3600", ... : what an error quotes
    char const* help;           // one sentence
};

std::span<Setting const> settings_table();  // in SettingId order

struct SettingValue {
    std::string text;  // default_value if unset
    bool is_set = false;
    std::string origin;  // "default" or "environment"
};

class Settings {
public:
    // environment: "NAME=value" strings; from_environment() passes environ. An illegal value is INVALID_ARGUMENT naming the
    // variable, the value and what is accepted; an empty value is the same as unset. An unknown XQAJIT_* name is a warning with the
    // nearest known name.
    static Result<Settings> parse(std::span<std::string const> environment);
    static Result<Settings> from_environment();

    SettingValue const& get(SettingId id) const { return values_[static_cast<std::size_t>(id)]; }
    std::string const& text(SettingId id) const { return get(id).text; }
    std::string shown(SettingId id) const;              // text() for people: of a url without its credentials
    std::vector<std::string> list(SettingId id) const;  // split at commas, trimmed, empty parts dropped
    std::uint64_t integer(SettingId id) const;
    std::uint64_t size(SettingId id) const;  // bytes; 0 where it is unset
    bool flag(SettingId id) const;           // "1"
    std::vector<std::string> const& warnings() const { return warnings_; }

private:
    std::array<SettingValue, static_cast<std::size_t>(SettingId::kCount)> values_;
    std::vector<std::string> warnings_;
};

std::string settings_markdown();  // the README's table

}  // namespace xqajit
