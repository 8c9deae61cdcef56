// What the subcommands share: their options, how they report, how they end.
// stdout is data, stderr is progress and errors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "xqajit/xqajit.hpp"

namespace xqajit::cli {

enum ExitCode : int {
    kDone = 0,
    kFailed = 1,    // something failed, and is named
    kUsage = 2,     // a flag, a field or a value
    kNotHere = 3,   // no GPU, no NVRTC, no directory: not possible on this machine
    kSignal = 128,  // and the signal's number: it ended a prewarm before all was done
};
ExitCode exit_code_of(xqajit_status status);

struct Common {
    std::string cache_dir;  // "": the settings decide
    bool json = false;
};

// A shape given by flags: "--head-dim 128" is the field head_dim of the shape list.
struct ShapeFlag {
    std::string field;
    std::string value;
};
// The library's parser alone judges names and values. Throws Error (INVALID_ARGUMENT) for a shape that is incomplete or wrong.
xqajit_params shape_of(std::vector<ShapeFlag> const& flags);
struct NamedShape {
    std::string name;  // "" for one given by flags
    xqajit_params params;
};
// The distinct shapes of a shape list, each with these flags in the place of its own values; no file: the one shape of the flags.
std::vector<NamedShape> shapes_of(Service& service, std::string const& file, std::vector<ShapeFlag> const& flags);

struct PrewarmOptions : Common {
    std::string shapes;
    std::string archs;
    std::uint32_t jobs = 0;
    std::string shard;  // as shard_of() takes it, or "" for the whole list
};
struct ExplainOptions : Common {
    std::string shapes;  // a file, or else the flags
    std::vector<ShapeFlag> flags;
    std::string arch;
    std::uint32_t batch = 1;
    std::uint64_t seq_len = 4096;
};
struct RunOptions : Common {
    std::vector<ShapeFlag> flags;
    std::uint32_t batch = 1;
    std::uint32_t seq_len = 4096;
    bool check = false;
};
struct BenchOptions : Common {
    std::string shapes;  // a file, or else the flags
    std::vector<ShapeFlag> flags;
    std::string batches = "1,8,32";
    std::string seq_lens = "1024,8192";
    std::string grid;
    std::string unequal;
    std::string kernel;
    bool check = false;
    bool peaked = false;
    std::uint64_t max_len = 0;  // 0: each point's longest
    std::string csv;
    std::string svg;
};
struct CacheOptions : Common {
    std::string verb;         // ls, show, verify, path, stats
    std::string key;          // of show: the start of a key, or a bundle's file
    bool prometheus = false;  // stats: what was counted, in Prometheus' text format
};
struct ExplainMissOptions : Common {
    std::string key;     // "": all of the shapes
    std::string shapes;  // a file, or the flags, or neither where there is a key
    std::vector<ShapeFlag> flags;
    std::string arch;
};
struct BundleOptions : Common {
    std::string file;
    bool allow_unsigned = false;
};
struct GcOptions : Common {
    std::uint64_t max_bytes = 0;  // 0: no limit, as below
    std::uint64_t max_age_seconds = 0;
    bool dry_run = false;
};

// Each returns the process's exit code; failures of the library leave as Error.
int prewarm(PrewarmOptions const& options);
int explain(ExplainOptions const& options);
int run(RunOptions const& options);
int bench(BenchOptions const& options);
int cache(CacheOptions const& options);
int cache_gc(GcOptions const& options);
int cache_export(BundleOptions const& options);
int cache_import(BundleOptions const& options);
int show_bundle(BundleOptions const& options);
int cache_explain_miss(ExplainMissOptions const& options);
int doctor(Common const& options);
int capabilities(Common const& options, std::string const& arch);

// All throw Error (INVALID_ARGUMENT) that names the file and the reason.
std::string read_text_file(std::string const& path);
void write_text_file(std::string const& path, std::string const& text);
void check_writable(std::string const& path);  // changes nothing
// In decimal without sign or leading zeros; no value where the text is anything else or out of the range.
std::optional<std::uint64_t> whole_number(std::string_view text, std::uint64_t least, std::uint64_t most);
struct Shard {
    std::uint32_t index;
    std::uint32_t count;
};
inline constexpr std::uint32_t kMaxShards = 65536;
std::optional<Shard> shard_of(std::string_view text);  // "0/4" .. "3/4"
void print(std::string const& text);                   // to stdout, with a final newline
// Flushes stdout; false, with a message on stderr, where something that was printed could not be written.
bool output_arrived();
void print_error(std::string const& text);  // to stderr: "xqajit: ..."
// What the library reports, which it does too where some of what it was to do failed: then the reason is on stderr, and the exit code is kFailed.
struct Report {
    std::string text;
    int exit_code = kDone;
};
Report report_of(std::function<std::string()> const& call);
void print_failed(nlohmann::ordered_json const& document);  // what a report names as failed, to stderr
// The folders that a document of the cache could not list: printed to stderr, kFailed if there are any.
int name_unlisted(nlohmann::ordered_json const& document);
// The layers of a document, one line each.
std::vector<std::string> layer_texts(nlohmann::ordered_json const& layers);
std::string remote_text(nlohmann::ordered_json const& remote);  // which is not null
// Control characters as \x1b: a name in a shape list must not steer the terminal.
std::string printable(std::string const& text);
// Columns padded to their widest cell, two spaces apart; the first row is the heading.
std::string table(std::vector<std::vector<std::string>> rows);
std::string human_bytes(std::uint64_t bytes);  // "48.0 KiB"

}  // namespace xqajit::cli
