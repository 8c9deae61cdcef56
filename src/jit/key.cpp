#include "jit/compiler.h"

namespace xqajit {

namespace {

TaggedHash hash_of(CompileRequest const& request) {
    TaggedHash hash;
    hash.add("format", kKeyFormat);
    hash.add("family", family_name(request.family));
    hash.add("target", request.target);
    for (auto const& [name, value] : request.macros.macros) hash.add(name, value);
    for (auto const& option : keyed_options(request.target)) hash.add("option", option);
    hash.add("sources", source_digest(request.family).hex());
    return hash;
}

}  // namespace

std::vector<std::string> keyed_options(std::string const& target) {
    return {"--gpu-architecture=" + target, "--std=c++20", "-default-device", "--fmad=true"};
}

CacheKey key_for(CompileRequest const& request, Digest const& compiler) { return {hash_of(request).digest(), compiler}; }

std::string key_text(CompileRequest const& request) { return hash_of(request).text(); }

}  // namespace xqajit
