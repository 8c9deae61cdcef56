#include "shell.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "catch.h"

namespace xqajit::testing {

using nlohmann::json;

Shell::Shell() {
    folder_ = (std::filesystem::temp_directory_path() / "xqajit-cli-XXXXXX").string();
    REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    environment_ = {"XQAJIT_CACHE_DIR=" + folder_ + "/cache", std::string("XQAJIT_NVRTC_PATH=") + FAKE_NVRTC,
                    std::string("LD_LIBRARY_PATH=") + FAKE_CUDA, "FAKE_CUDA_DEVICES=9.0"};
}

Shell::~Shell() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void Shell::set(std::string const& name, std::string const& value) {
    unset(name);
    environment_.push_back(name + "=" + value);
}

void Shell::unset(std::string const& name) {
    std::erase_if(environment_, [&](std::string const& entry) { return entry.starts_with(name + "="); });
}

ProcessResult Shell::run(std::vector<std::string> const& arguments) const {
    std::vector<std::string> argv = {XQAJIT};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_program(argv);
}

ProcessResult Shell::run_program(std::vector<std::string> const& argv) const {
    Result<ProcessResult> result = try_program(argv);
    REQUIRE(result.ok());
    REQUIRE(result->end == ProcessResult::End::kExited);
    return *result;
}

Result<ProcessResult> Shell::try_program(std::vector<std::string> const& argv) const {
    return run_process(argv, "", std::chrono::seconds(120), &environment_);
}

json Shell::document(std::vector<std::string> arguments, int exit_code) const {
    arguments.push_back("--json");
    ProcessResult const result = run(arguments);
    INFO(result.out << result.err);
    CHECK(result.code == exit_code);
    json parsed = json::parse(result.out, nullptr, false);
    REQUIRE(parsed.is_object());
    CHECK(parsed["schema"].get<std::string>().starts_with("xqajit."));
    return parsed;
}

std::string Shell::write(std::string const& name, std::string const& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
}

std::vector<std::string> with_shape(std::vector<std::string> arguments, std::vector<std::string> const& more) {
    for (char const* part : {"--q-dtype", "bf16", "--num-q-heads", "32", "--num-kv-heads", "8", "--head-dim", "128"})
        arguments.push_back(part);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace xqajit::testing
