// Why a kernel would be compiled: the fields of its key beside those of the entries that are nearest to it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/json.h"
#include "service/documents.h"
#include "service/impl.h"
#include "service/metadata.h"

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kNearest = 3;
constexpr char kUnknown[] = "unknown";

// All that a key is made of, by name. The compiler is no part of it: its digest has no field but itself.
using Fields = std::map<std::string, std::string>;

struct Wanted {
    ImageKey key;
    Fields fields;
};

// What a person knows of a key: the start of its body, or all of it.
struct KeyPattern {
    std::string body;
    std::optional<Digest> compiler;
    bool matches(Digest const& digest) const { return digest.hex().starts_with(body); }
};

Result<KeyPattern> parse_pattern(std::string_view text) {
    constexpr std::size_t kDigits = 32;
    std::size_t const slash = text.find('/');
    KeyPattern pattern{std::string(text.substr(0, slash)), std::nullopt};
    bool good = pattern.body.find_first_not_of("0123456789abcdef") == std::string::npos && pattern.body.size() <= kDigits;
    if (slash != std::string_view::npos) {
        Digest compiler;
        good = good && pattern.body.size() == kDigits && Digest::parse(text.substr(slash + 1), compiler);
        pattern.compiler = compiler;
    }
    if (good) return pattern;
    return invalid_argument(
        fmt::format("key is '{}': accepted are up to {} lower-case hex digits, its start, or {} of the body, a slash and {} of the "
                    "compiler",
                    text, kDigits, kDigits, kDigits));
}

// The target says which architecture the compiler was told.
std::string options_text(std::vector<std::string> const& options) {
    std::string text;
    for (std::string const& option : options)
        if (!option.starts_with("--gpu-architecture=")) text += (text.empty() ? "" : " ") + option;
    return text;
}

Fields fields_of(CompileRequest const& request) {
    Fields fields = {{"family", family_name(request.family)},
                     {"target", request.target},
                     {"key_format", kKeyFormat},
                     {"options", options_text(keyed_options(request.target))},
                     {"sources", source_digest(request.family).hex()}};
    fields.insert(request.macros.macros.begin(), request.macros.macros.end());
    return fields;
}

// Metadata is whatever the file says: what it does not have as text is missing.
Fields fields_of(cache::ListedEntry const& entry) {
    Json const metadata = parse_metadata(entry.metadata);
    Fields fields;
    if (!metadata.is_object()) return fields;
    for (char const* name : {"family", "target", "key_format", "sources"})
        if (metadata.contains(name) && metadata[name].is_string()) fields[name] = metadata[name].get<std::string>();
    if (metadata.contains("options") && metadata["options"].is_array()) {
        std::vector<std::string> options;
        for (Json const& option : metadata["options"]) options.push_back(plain_text(option));
        fields["options"] = options_text(options);
    }
    if (metadata.contains("macros") && metadata["macros"].is_object())
        for (auto const& [name, value] : metadata["macros"].items()) fields[name] = plain_text(value);
    return fields;
}

Json difference(std::string const& field, std::optional<std::string> const& wanted, std::optional<std::string> const& found) {
    auto const json = [](std::optional<std::string> const& text) { return text ? Json(*text) : Json(nullptr); };
    return {{"field", field}, {"wanted", json(wanted)}, {"found", json(found)}};
}

Json differences(Wanted const& wanted, std::string const& version, cache::ListedEntry const& entry) {
    Json list = Json::array();
    Digest const& compiler = wanted.key.key.compiler;
    if (compiler != entry.key.compiler) {
        std::optional<std::string> present;
        if (wanted.key.compiler.ok()) present = fmt::format("{} (NVRTC {})", compiler.hex(), version);
        list.push_back(difference("compiler", present,
                                  fmt::format("{} (NVRTC {})", entry.key.compiler.hex(), nvrtc_version_of(entry.metadata))));
    }
    if (wanted.key.key.body == entry.key.body) return list;
    Fields const found = fields_of(entry);
    auto const value = [](Fields const& fields, std::string const& name) {
        auto const at = fields.find(name);
        return at == fields.end() ? std::nullopt : std::optional(at->second);
    };
    Fields all = wanted.fields;
    all.insert(found.begin(), found.end());
    for (auto const& [name, unused] : all) {
        std::optional<std::string> const ours = value(wanted.fields, name), theirs = value(found, name);
        if (ours != theirs) list.push_back(difference(name, ours, theirs));
    }
    // Metadata that says otherwise than the key.
    if (list.empty()) list.push_back(difference("body", wanted.key.key.body.hex(), entry.key.body.hex()));
    return list;
}

Json nearest(Wanted const& wanted, std::string const& version, cache::Listing const& listing) {
    std::vector<Json> candidates;
    for (cache::ListedEntry const& entry : listing.entries) {
        if (!entry.status.ok()) continue;
        candidates.push_back(
            {{"key", key_text(entry.key)}, {"path", entry.path}, {"differences", differences(wanted, version, entry)}});
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](Json const& a, Json const& b) { return a["differences"].size() < b["differences"].size(); });
    candidates.resize(std::min(candidates.size(), kNearest));
    return candidates;
}

Json explained(Service::Impl& service, Wanted const& wanted, cache::Listing const& listing) {
    ImageKey const& key = wanted.key;
    Json json = {{"key", key_text(key.key)}};
    if (!key.compiler.ok()) json["compiler_reason"] = key.compiler.message();
    json["fields"] = wanted.fields;
    if (std::shared_ptr<KernelImage const> const image = service.images.peek(key)) {
        json["result"] = "hit";
        if (image->key != key.key) json["served_by"] = key_text(image->key);  // XQAJIT_COMPILER_MATCH
        return json;
    }
    auto const own = std::find_if(listing.entries.begin(), listing.entries.end(),
                                  [&](cache::ListedEntry const& entry) { return entry.key == key.key && !entry.status.ok(); });
    json["result"] = own == listing.entries.end() ? "miss" : "unusable";
    if (own != listing.entries.end()) json["error"] = own->status.message();
    // A kernel that is missed is compiled: NVRTC may be loaded.
    Result<std::shared_ptr<NvrtcLibrary const>> const nvrtc = service.toolchain.library();
    json["nearest"] = nearest(wanted, nvrtc.ok() ? (*nvrtc)->version() : kUnknown, listing);
    return json;
}

Status no_such_key(std::string_view given, std::string const& why) {
    return invalid_argument(fmt::format("key is '{}': {}", given, why));
}

}  // namespace

Result<std::string> Service::cache_explain_miss(std::string_view key_prefix, XQAParams const* params, char const* arch) {
    Result<KeyPattern> const pattern = parse_pattern(key_prefix);
    if (!pattern.ok()) return pattern.status();
    if (params == nullptr && key_prefix.empty()) return invalid_argument("key_prefix and params are both null: one is needed");
    XQAJIT_RETURN_IF_ERROR(usable(*impl_->store));
    cache::Listing const listing = impl_->store->list();

    std::vector<Wanted> kernels;
    std::map<Digest, cache::ListedEntry const*> known;  // one entry a body
    if (params != nullptr) {
        Result<XQAParams> const shape = checked(*params);
        if (!shape.ok()) return shape.status();
        Result<Target> const target = target_for_document(impl_->settings, arch);
        if (!target.ok()) return target.status();
        Result<Selection> const selection = select(*shape, target->arch, impl_->overrides);
        if (!selection.ok()) return selection.status();
        for (KernelSpec const& spec : selection->specs()) {
            CompileRequest const request = request_of(spec);
            ImageKey key = impl_->images.key_of(request);
            if (pattern->matches(key.key.body)) kernels.push_back({std::move(key), fields_of(request)});
        }
        if (kernels.empty()) return no_such_key(key_prefix, "no kernel of the shape has it");
    } else {
        for (cache::ListedEntry const& entry : listing.entries)
            if (entry.status.ok() && pattern->matches(entry.key.body)) known.emplace(entry.key.body, &entry);
        if (known.empty()) {
            return no_such_key(key_prefix, fmt::format("no entry of {} has it, and a key does not tell its fields: give the shape",
                                                       impl_->store->state().effective_path));
        }
        for (auto const& [body, entry] : known) kernels.push_back({impl_->images.with_compiler(body), fields_of(*entry)});
    }

    Json list = Json::array();
    for (Wanted& wanted : kernels) {
        if (pattern->compiler) {
            wanted.key.key.compiler = *pattern->compiler;
            wanted.key.compiler = {};
        }
        list.push_back(explained(*impl_, wanted, listing));
    }
    cache::StoreState const state = impl_->store->state();
    Json const json = {
        {"schema", "xqajit.cache.explain-miss/1"}, {"path", state.effective_path}, {"exists", state.exists},
        {"entries", listing.entries.size()},       {"kernels", std::move(list)},   {"unlisted", unlisted_json(listing)}};
    return to_text(json, 1);
}

}  // namespace xqajit
