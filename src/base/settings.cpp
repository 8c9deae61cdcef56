#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/nearest.h"
#include "base/quantity.h"
#include "base/split.h"
#include "base/url.h"

namespace xqajit {
namespace {

// clang-format off
constexpr Setting kSettings[] = {
    {SettingId::kCacheDir, "XQAJIT_CACHE_DIR", "path", "", "a directory",
     "Where compiled kernels are kept; unset: $XDG_CACHE_HOME/xqajit, else $HOME/.cache/xqajit."},
    {SettingId::kCacheMaxSize, "XQAJIT_CACHE_MAX_SIZE", "size", "", kAcceptedSizes,
     "A store that takes the cache's entries past this removes the least recently used ones, down to 80 % of it; unset: no limit."},
    {SettingId::kCacheKeyFile, "XQAJIT_CACHE_KEY_FILE", "path", "", "a file of 32..4096 bytes that only you or root may read",
     "The secret that signs exported entries and that imported ones must be signed with; unset: none is signed, and unsigned ones are let in only by name."},
    {SettingId::kCacheLayers, "XQAJIT_CACHE_LAYERS", "path", "", "absolute paths of directories and bundles, with colons between",
     "Read-only layers, looked into in this order after the cache directory; yours or root's, and writable by nobody else."},
    {SettingId::kCacheCopyHits, "XQAJIT_CACHE_COPY_HITS", "flag", "0", "0|1",
     "1: a kernel that a layer has is stored in the cache directory too."},
    {SettingId::kRemoteCache, "XQAJIT_REMOTE_CACHE", "url", "", kAcceptedUrls,
     "A server of kernels, asked after the layers and before a compile; unset: none."},
    {SettingId::kRemoteCacheWrite, "XQAJIT_REMOTE_CACHE_WRITE", "flag", "0", "0|1",
     "1: what is compiled is put on the server too."},
    {SettingId::kRemoteTimeout, "XQAJIT_REMOTE_TIMEOUT", "integer", "250", "10..60000",
     "Milliseconds that the server may take to answer, and to go on with an answer; a whole transfer may take ten times as long."},
    {SettingId::kRemoteAllowUnsigned, "XQAJIT_REMOTE_ALLOW_UNSIGNED", "flag", "0", "0|1",
     "1: the server's kernels need no signature under XQAJIT_CACHE_KEY_FILE: whoever may write to it, or stands between, runs code here."},
    {SettingId::kNvrtcPath, "XQAJIT_NVRTC_PATH", "path", "", "a file or its directory",
     "The NVRTC library, alone; unset: the loader's path, $CUDA_HOME, then pip's nvidia/*/lib."},
    {SettingId::kArch, "XQAJIT_ARCH", "text", "", "architectures such as sm_90a, with commas between",
     "The first that is usable is compiled for, others are skipped with a warning, none is an error; unset: the device's."},
    {SettingId::kForceKernel, "XQAJIT_FORCE_KERNEL", "list", "", "hmma|gmma|mla|mmha",
     "Kernel families in order of preference; a shape that none of them serves is an error. Unset: chosen by rule."},
    {SettingId::kNumeric, "XQAJIT_NUMERIC", "choice", "", "exact16|fp8",
     "How 8-bit KV enters the arithmetic; unset: the shape's own field."},
    {SettingId::kDivision, "XQAJIT_DIVISION", "choice", "", "static|balanced|invariant",
     "How KV is divided over thread blocks; unset: the shape's own field."},
    {SettingId::kNbSubSeq, "XQAJIT_NB_SUB_SEQ", "integer", "0", "0..6000",
     "Sub-sequences of each request under static division; 0: chosen."},
    {SettingId::kPdl, "XQAJIT_PDL", "choice", "", "on|off",
     "Programmatic dependent launch where the architecture has it; unset: the shape's own field."},
    {SettingId::kPerfGate, "XQAJIT_PERF_GATE", "choice", "off", "off|reference",
     "reference: launches too small for the reference system's formula run mmha in the place of hmma or gmma, which changes bits; not under invariant division."},
    {SettingId::kOnMiss, "XQAJIT_ON_MISS", "choice", "", "compile|fallback|refuse",
     "What a launch does with a shape that is not loaded; unset: the shape's own field."},
    {SettingId::kCompile, "XQAJIT_COMPILE", "choice", "in_process", "in_process|worker",
     "Where prepare and run compile; prewarm always uses workers."},
    {SettingId::kCompileTimeout, "XQAJIT_COMPILE_TIMEOUT", "integer", "120", "1..3600",
     "Seconds that one kernel's compile in a worker may take."},
    {SettingId::kLockTimeout, "XQAJIT_LOCK_TIMEOUT", "integer", "120", "0..3600",
     "Seconds to wait for another process that compiles the same kernel, before compiling it here too; 0: no wait."},
    {SettingId::kWorker, "XQAJIT_WORKER", "path", "", "an executable, by its absolute path",
     "The compile worker; unset: libexec/xqajit/xqajit-worker beside the library, or the process itself where there is none."},
    {SettingId::kCompilerMatch, "XQAJIT_COMPILER_MATCH", "choice", "", "exact|any",
     "Whether a cached kernel must come from the present NVRTC; unset: exact, or any where no NVRTC is found."},
    {SettingId::kRecordShapes, "XQAJIT_RECORD_SHAPES", "path", "", "a file",
     "Each new shape that is asked for is appended to this shape list."},
    {SettingId::kDebug, "XQAJIT_DEBUG", "flag", "0", "0|1",
     "1: every launch checks the lengths on the device, and synchronises."},
    {SettingId::kLogLevel, "XQAJIT_LOG_LEVEL", "choice", "warning", "trace|debug|info|warning|error|off",
     "The least severe messages that are logged."},
};
// clang-format on
static_assert(std::size(kSettings) == static_cast<std::size_t>(SettingId::kCount));

constexpr std::string_view kPrefix = "XQAJIT_";

bool parse_integer(std::string_view text, std::uint64_t& value) {
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

bool one_of(std::string_view word, std::string_view accepted) {
    for (std::string const& known : split(accepted, "|"))
        if (known == word) return true;
    return false;
}

std::string shown_value(Setting const& setting, std::string_view value) {
    return std::string_view(setting.type) == "url" ? without_credentials(value) : std::string(value);
}

bool legal(Setting const& setting, std::string_view value) {
    std::string_view const type = setting.type;
    std::string_view const accepted = setting.accepted;
    if (type == "choice" || type == "flag") return one_of(value, accepted);
    if (type == "list") {
        std::vector<std::string> const parts = split(value, ",");
        for (std::string const& part : parts)
            if (!one_of(part, accepted)) return false;
        return !parts.empty();
    }
    if (type == "integer") {
        std::size_t const dots = accepted.find("..");
        std::uint64_t number = 0, least = 0, most = 0;
        return parse_integer(accepted.substr(0, dots), least) && parse_integer(accepted.substr(dots + 2), most) &&
               parse_integer(value, number) && least <= number && number <= most;
    }
    if (type == "size") return parse_size(value).has_value();
    if (type == "url") return Url::parse(value).ok();
    return true;  // a path or a text is judged by its user
}

Setting const* find(std::string_view name) {
    for (Setting const& setting : kSettings)
        if (setting.name == name) return &setting;
    return nullptr;
}

std::string unknown_name(std::string_view name) {
    // The prefix is right already: were it counted, names that have nothing else in common would seem close.
    std::vector<std::string_view> known;
    for (Setting const& setting : kSettings) known.push_back(std::string_view(setting.name).substr(kPrefix.size()));
    std::string_view const meant = nearest(name.substr(kPrefix.size()), known);
    std::string const hint = meant.empty() ? "" : " (did you mean 'XQAJIT_" + std::string(meant) + "'?)";
    return "the environment variable " + std::string(name) + " is no setting" + hint;
}

}  // namespace

std::span<Setting const> settings_table() { return kSettings; }

Result<Settings> Settings::parse(std::span<std::string const> environment) {
    Settings settings;
    for (Setting const& setting : kSettings)
        settings.values_[static_cast<std::size_t>(setting.id)] = {setting.default_value, false, "default"};

    for (std::string_view const entry : environment) {
        std::size_t const equals = entry.find('=');
        if (equals == std::string_view::npos || !entry.starts_with(kPrefix)) continue;
        std::string_view const name = entry.substr(0, equals);
        std::string_view const value = entry.substr(equals + 1);
        Setting const* const setting = find(name);
        if (setting == nullptr) {
            settings.warnings_.push_back(unknown_name(name));
            continue;
        }
        SettingValue& slot = settings.values_[static_cast<std::size_t>(setting->id)];
        if (value.empty() || slot.is_set) continue;  // empty is unset; of two entries the first counts, as with getenv
        if (!legal(*setting, value)) {
            std::string const count = std::string_view(setting->type) == "list" ? "a comma-separated list of " : "";
            return invalid_argument(std::string(name) + " is '" + shown_value(*setting, value) + "': accepted is " + count +
                                    setting->accepted);
        }
        slot = {std::string(value), true, "environment"};
    }
    return settings;
}

Result<Settings> Settings::from_environment() {
    std::vector<std::string> entries;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
        if (std::string_view(*entry).starts_with(kPrefix)) entries.emplace_back(*entry);
    return parse(entries);
}

std::string Settings::shown(SettingId id) const { return shown_value(kSettings[static_cast<std::size_t>(id)], text(id)); }

std::vector<std::string> Settings::list(SettingId id) const { return split(text(id), ","); }

std::uint64_t Settings::integer(SettingId id) const {
    std::uint64_t value = 0;
    parse_integer(text(id), value);  // legal since parse(); "" is 0
    return value;
}

std::uint64_t Settings::size(SettingId id) const { return parse_size(text(id)).value_or(0); }

bool Settings::flag(SettingId id) const { return text(id) == "1"; }

std::string settings_markdown() {
    std::string table = "| Variable | Type | Accepted | Default | Meaning |\n| --- | --- | --- | --- | --- |\n";
    for (Setting const& setting : kSettings) {
        std::string accepted;
        for (std::string const& word : split(setting.accepted, "|")) accepted += (accepted.empty() ? "" : ", ") + word;
        std::string const fallback = *setting.default_value == '\0' ? "unset" : "`" + std::string(setting.default_value) + "`";
        table += "| `" + std::string(setting.name) + "` | " + setting.type + " | " + accepted + " | " + fallback + " | " +
                 setting.help + " |\n";
    }
    return table;
}

}  // namespace xqajit
