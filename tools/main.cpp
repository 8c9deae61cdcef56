// xqajit: the command. Flags are declared here, one function a subcommand does the work over the public C interface.
#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/quantity.h"
#include "cli.h"
#include "shape_flags.h"
#include "standard_streams.h"

namespace {

using namespace xqajit::cli;

void add_common(CLI::App& command, Common& options) {
    command.add_option("--cache-dir", options.cache_dir, "The cache directory; default: XQAJIT_CACHE_DIR and its defaults")
        ->type_name("DIR")
        ->check([](std::string const& path) { return path.empty() ? "'': accepted is the path of a directory" : ""; }, "");
    command.add_flag("--json", options.json, "Print a JSON document");
}

// Before the parser converts: it takes 010 as octal and 0x10 as hexadecimal.
auto in_range(std::uint64_t least, std::uint64_t most) {
    return [least, most](std::string const& value) -> std::string {
        if (whole_number(value, least, most)) return {};
        return "'" + value + "': accepted are " + std::to_string(least) + ".." + std::to_string(most) +
               ", in decimal without leading zeros";
    };
}

// The words that no option and no subcommand took, each with the known one that it is close to.
std::string suggestions(CLI::App const& command) {
    constexpr std::string_view kDashes = "--";
    std::string text;
    for (std::string const& word : command.remaining()) {
        bool const is_flag = word.starts_with(kDashes);
        std::vector<std::string> names;
        if (is_flag) {
            for (CLI::Option const* option : command.get_options())
                for (std::string const& name : option->get_lnames()) names.push_back(name);
        } else {
            for (CLI::App const* sub : command.get_subcommands([](CLI::App const*) { return true; }))
                names.push_back(sub->get_name());
        }
        // The dashes are right already: were they counted, short flags that have nothing else in common would seem close.
        std::string const given = word.substr(0, word.find('=')).substr(is_flag ? kDashes.size() : 0);
        std::vector<std::string_view> const known(names.begin(), names.end());
        std::string_view const meant = xqajit::nearest(given, known);
        if (meant.empty()) continue;
        text += (text.empty() ? "" : "\n") + word + ": did you mean '" + (is_flag ? "--" : "") + std::string(meant) + "'?";
    }
    for (CLI::App const* given : command.get_subcommands()) {
        std::string const more = suggestions(*given);
        text += (text.empty() || more.empty() ? "" : "\n") + more;
    }
    return text;
}

class Command {
public:
    Command() {
        app_.require_subcommand(0, 1);  // run() asks for one: the parser would ask before it names a misspelt one
        app_.set_version_flag("--version", std::string(xqajit_version()));
        app_.footer(
            "Exit codes: 0 done, 1 something failed, 2 usage, 3 not possible on this machine, 130 and 143 prewarm was "
            "interrupted.");
        add_prewarm();
        add_cache();
        add_explain();
#ifdef XQAJIT_HAS_RUN  // needs the tests' data and reference: built with XQAJIT_TESTS
        add_run();
        add_bench();
#endif
        add_capabilities();
        add_doctor();
    }

    int run(int argc, char** argv) {
        try {
            app_.parse(argc, argv);
        } catch (CLI::ParseError const& error) {
            bool const is_help = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
            app_.exit(error);
            if (is_help) return kDone;
            if (std::string const text = suggestions(app_); !text.empty()) print_error(text);
            return kUsage;
        }
        if (!action_) {
            print_error("a subcommand is required: --help lists them");
            return kUsage;
        }
        try {
            return action_();
        } catch (xqajit::Error const& error) {
            print_error(error.what());
            return exit_code_of(error.code());
        }
    }

private:
    void add_prewarm() {
        CLI::App* command = app_.add_subcommand("prewarm", "Compile the kernels of a shape list into the cache");
        command->add_option("--shapes", prewarm_.shapes, "The shape list")->required()->type_name("FILE");
        command->add_option("--arch", prewarm_.archs, "Architectures, as sm_90a,sm_80; default: the present GPUs'")
            ->type_name("LIST");
        command
            ->add_option("--jobs", prewarm_.jobs,
                         "Worker processes; default: by cores and memory, a control group's limit included")
            ->check(in_range(1, 1024), "1..1024");
        command
            ->add_option("--shard", prewarm_.shard,
                         "Share I of N of the list, from 0: $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT of an array 0-(N-1), "
                         "$JOB_COMPLETION_INDEX/N of an indexed job. A kernel's key decides: no two shares have one, all have each")
            ->type_name("I/N")
            ->check(
                [](std::string const& value) -> std::string {
                    if (shard_of(value)) return {};
                    return "'" + value + "': accepted is I/N, I in 0..N-1 and N in 1.." + std::to_string(kMaxShards) +
                           ", in decimal without leading zeros";
                },
                "");
        add_common(*command, prewarm_);
        command->callback([this] { action_ = [this] { return prewarm(prewarm_); }; });
    }

    void add_cache() {
        CLI::App* command = app_.add_subcommand("cache", "What is on disk");
        command->require_subcommand(0, 1);
        struct Verb {
            char const* name;
            char const* help;
        };
        for (Verb const& verb :
             {Verb{"ls", "List the entries"}, Verb{"show", "One entry, by the start of its key, or what a bundle has"},
              Verb{"verify", "Check every entry"}, Verb{"path", "The effective directory"},
              Verb{"stats", "Totals by family, target and compiler"}}) {
            CLI::App* sub = command->add_subcommand(verb.name, verb.help);
            add_common(*sub, cache_);
            std::string const name = verb.name;
            if (name == "show")
                sub->add_option("KEY", cache_.key, "The start of a key, or the path of a bundle (./abc if it looks like a key)")
                    ->required();
            if (name == "stats") {
                sub->add_flag("--prometheus", cache_.prometheus, "Print what was counted, in Prometheus' text format")
                    ->excludes(sub->get_option("--json"));
            }
            sub->callback([this, name] {
                cache_.verb = name;
                action_ = [this] { return cache(cache_); };
            });
        }
        add_cache_gc(*command);
        add_cache_bundle(*command);
        add_cache_explain_miss(*command);
    }

    void add_cache_explain_miss(CLI::App& cache) {
        CLI::App* command = cache.add_subcommand(
            "explain-miss", "Why a kernel would be compiled: its key's fields beside those of the nearest entries");
        command->add_option("KEY", miss_.key, "The start of a key; of one that no entry has, with the shape");
        CLI::Option* shapes = command->add_option("--shapes", miss_.shapes, "A shape list, instead of flags")->type_name("FILE");
        command->add_option("--arch", miss_.arch, "Architecture; default: the GPU's")->type_name("ARCH");
        add_common(*command, miss_);
        miss_flags_ = std::make_unique<ShapeFlags>(*command);
        command->callback([this, shapes] {
            miss_.flags = miss_flags_->given();
            if (shapes->count() > 0 && !miss_.flags.empty()) throw CLI::ExcludesError("--shapes", "shape flags");
            if (shapes->count() == 0 && miss_.flags.empty() && miss_.key.empty())
                throw CLI::RequiredError("KEY, --shapes or shape flags");
            action_ = [this] { return cache_explain_miss(miss_); };
        });
    }

    void add_cache_bundle(CLI::App& cache) {
        CLI::App* writer = cache.add_subcommand("export", "Write all entries into one file, a bundle");
        writer->add_option("FILE", bundle_.file, "The bundle; replaced if it is there")->required();
        add_common(*writer, bundle_);
        writer->callback([this] { action_ = [this] { return cache_export(bundle_); }; });
        CLI::App* reader = cache.add_subcommand("import", "Take all entries of a bundle, or none");
        reader->add_option("FILE", bundle_.file, "The bundle")->required();
        reader->add_flag("--allow-unsigned", bundle_.allow_unsigned,
                         "Take entries without a signature too, and where XQAJIT_CACHE_KEY_FILE is unset any");
        add_common(*reader, bundle_);
        reader->callback([this] { action_ = [this] { return cache_import(bundle_); }; });
    }

    void add_cache_gc(CLI::App& cache) {
        CLI::App* command = cache.add_subcommand("gc", "Remove the least recently used entries, until the limits hold");
        auto const limit = [command](char const* flag, char const* help, char const* type, auto const& parse, char const* accepted,
                                     std::uint64_t& value) {
            return command
                ->add_option_function<std::string>(
                    flag, [&value, parse](std::string const& text) { value = *parse(text); }, help)
                ->type_name(type)
                ->check(
                    [parse, accepted](std::string const& text) {
                        return parse(text) ? std::string() : "'" + text + "': accepted is " + accepted;
                    },
                    "");
        };
        CLI::Option* size = limit("--max-size", "What all entries together may have, as 512M", "SIZE", xqajit::parse_size,
                                  xqajit::kAcceptedSizes, gc_.max_bytes);
        CLI::Option* age = limit("--max-age", "How long ago an entry's last use may be, as 30d", "AGE", xqajit::parse_age,
                                 xqajit::kAcceptedAges, gc_.max_age_seconds);
        command->add_flag("--dry-run", gc_.dry_run, "Remove nothing, and print what would be");
        add_common(*command, gc_);
        command->callback([this, size, age] {
            if (size->count() + age->count() == 0) throw CLI::RequiredError("--max-size or --max-age");
            action_ = [this] { return cache_gc(gc_); };
        });
    }

    void add_explain() {
        CLI::App* command = app_.add_subcommand("explain", "The chain from a shape to its kernel and launch, without a GPU");
        CLI::Option* shapes = command->add_option("--shapes", explain_.shapes, "A shape list, instead of flags")->type_name("FILE");
        command->add_option("--arch", explain_.arch, "Architecture; default: the GPU's")->type_name("ARCH");
        command->add_option("--batch", explain_.batch, "Requests")->check(in_range(0, 65536), "0..65536")->capture_default_str();
        command->add_option("--seq-len", explain_.seq_len, "Tokens of the longest request")
            ->check(in_range(0, 2147483647), "0..2147483647")
            ->capture_default_str();
        add_common(*command, explain_);
        explain_flags_ = std::make_unique<ShapeFlags>(*command);
        command->callback([this, shapes] {
            explain_.flags = explain_flags_->given();
            if (shapes->count() > 0 && !explain_.flags.empty()) throw CLI::ExcludesError("--shapes", "shape flags");
            if (shapes->count() == 0 && explain_.flags.empty()) throw CLI::RequiredError("--shapes or shape flags");
            action_ = [this] { return explain(explain_); };
        });
    }

#ifdef XQAJIT_HAS_RUN
    void add_run() {
        CLI::App* command = app_.add_subcommand(
            "run", "Run one shape on random data, and time it against a kernel that only reads as many bytes (GPU)");
        command->add_option("--batch", run_.batch, "Requests")->check(in_range(1, 65536), "1..65536")->capture_default_str();
        command->add_option("--seq-len", run_.seq_len, "Tokens of every request")
            ->check(in_range(0, 1u << 24), "0..16777216")
            ->capture_default_str();
        command->add_flag("--check", run_.check, "Compare with the float64 reference");
        add_common(*command, run_);
        run_flags_ = std::make_unique<ShapeFlags>(*command);
        command->callback([this] {
            run_.flags = run_flags_->given();
            action_ = [this] { return xqajit::cli::run(run_); };
        });
    }

    void add_bench() {
        CLI::App* command =
            app_.add_subcommand("bench", "Time shapes at batches and lengths, against a kernel that only reads (GPU)");
        CLI::Option* shapes = command->add_option("--shapes", bench_.shapes, "A shape list, instead of flags")->type_name("FILE");
        CLI::Option* batches = command->add_option("--batch", bench_.batches, "Requests; each with every length")
                                   ->type_name("N,...")
                                   ->capture_default_str();
        CLI::Option* lens =
            command->add_option("--seq-len", bench_.seq_lens, "Tokens of every request")->type_name("L,...")->capture_default_str();
        CLI::Option* grid =
            command->add_option("--grid", bench_.grid, "Points, as 1x1024,8x8192,1x131072+31x512")->type_name("NxL,...");
        CLI::Option* unequal =
            command->add_option("--unequal", bench_.unequal, "Points, each against the same tokens in equal lengths")
                ->type_name("NxL+NxL,...");
        command->add_option("--kernel", bench_.kernel, "As XQAJIT_FORCE_KERNEL: a shape that it does not serve is an error")
            ->type_name("FAMILY");
        CLI::Option* split = command->add_option("--split", split_, "Sub-sequences, for every shape; 0: chosen")
                                 ->type_name("N")
                                 ->check(in_range(0, 6000), "0..6000");
        command->add_flag("--check", bench_.check, "Compare with the float64 reference");
        command
            ->add_option(
                "--max-len", bench_.max_len,
                "The bound that launches are planned for, as of a graph captured for longer contexts; default: the longest")
            ->type_name("TOKENS")
            ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{INT32_MAX}));
        command->add_flag("--peaked", bench_.peaked, "Keys of which a few take most of the weight: what skip-softmax gains");
        command->add_option("--csv", bench_.csv, "Also as CSV")->type_name("FILE");
        command->add_option("--svg", bench_.svg, "A plot of the fraction of the read roofline")->type_name("FILE");
        add_common(*command, bench_);
        bench_flags_ = std::make_unique<ShapeFlags>(*command);
        command->callback([this, shapes, batches, lens, grid, unequal, split] {
            bench_.flags = bench_flags_->given();
            bool other_flags = false;  // than the launch policy, which may be set for a whole list
            for (ShapeFlag const& flag : bench_.flags) {
                other_flags |= flag.field != "division" && flag.field != "nb_sub_seq";
                if (flag.field == "nb_sub_seq" && split->count() > 0) throw CLI::ExcludesError("--split", "--nb-sub-seq");
            }
            if (shapes->count() > 0 && other_flags) throw CLI::ExcludesError("--shapes", "shape flags");
            if (shapes->count() == 0 && !other_flags) throw CLI::RequiredError("--shapes or shape flags");
            if (split->count() > 0) bench_.flags.push_back({"nb_sub_seq", split_});
            // Points alone: the product of --batch and --seq-len joins where one of these is given.
            if (grid->count() + unequal->count() > 0 && batches->count() + lens->count() == 0)
                bench_.batches = bench_.seq_lens = "";
            action_ = [this] { return bench(bench_); };
        });
    }
#endif

    void add_capabilities() {
        CLI::App* command = app_.add_subcommand("capabilities", "The shapes that each kernel family serves");
        command->add_option("--arch", arch_, "Architecture; default: the GPU's")->type_name("ARCH");
        add_common(*command, capabilities_);
        command->callback([this] { action_ = [this] { return capabilities(capabilities_, arch_); }; });
    }

    void add_doctor() {
        CLI::App* command = app_.add_subcommand("doctor", "Compiler, driver, GPUs, cache directory and settings of this machine");
        add_common(*command, doctor_);
        command->callback([this] { action_ = [this] { return doctor(doctor_); }; });
    }

    CLI::App app_{"Decode-attention kernels compiled at run time", "xqajit"};
    std::function<int()> action_;
    PrewarmOptions prewarm_;
    CacheOptions cache_;
    GcOptions gc_;
    BundleOptions bundle_;
    ExplainMissOptions miss_;
    ExplainOptions explain_;
    RunOptions run_;
    BenchOptions bench_;
    std::string split_;
    Common capabilities_;
    std::string arch_;
    Common doctor_;
    std::unique_ptr<ShapeFlags> miss_flags_;
    std::unique_ptr<ShapeFlags> explain_flags_;
    std::unique_ptr<ShapeFlags> run_flags_;
    std::unique_ptr<ShapeFlags> bench_flags_;
};

}  // namespace

int main(int argc, char** argv) {
    if (!xqajit::open_standard_streams()) return kFailed;
    try {
        int const exit_code = Command().run(argc, argv);
        return output_arrived() || exit_code != kDone ? exit_code : kFailed;
    } catch (std::exception const& error) {
        print_error(error.what());
        return kFailed;
    }
}
