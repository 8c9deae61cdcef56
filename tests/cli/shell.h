// Runs the command as a user does, on the fake driver and the fake compiler, in a folder of its own.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/subprocess.h"
#include "catch.h"

namespace xqajit {

using nlohmann::json;

class Shell {
public:
    Shell() {
        folder_ = (std::filesystem::temp_directory_path() / "xqajit-cli-XXXXXX").string();
        REQUIRE(::mkdtemp(folder_.data()) != nullptr);
        environment_ = {"XQAJIT_CACHE_DIR=" + folder_ + "/cache", std::string("XQAJIT_NVRTC_PATH=") + FAKE_NVRTC,
                        std::string("LD_LIBRARY_PATH=") + FAKE_CUDA, "FAKE_CUDA_DEVICES=9.0"};
    }
    ~Shell() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    std::string const& folder() const { return folder_; }
    void set(std::string const& name, std::string const& value) {
        std::erase_if(environment_, [&](std::string const& entry) { return entry.starts_with(name + "="); });
        environment_.push_back(name + "=" + value);
    }
    ProcessResult run(std::vector<std::string> const& arguments) const {
        std::vector<std::string> argv = {XQAJIT};
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        return run_program(argv);
    }
    ProcessResult run_program(std::vector<std::string> const& argv) const {
        Result<ProcessResult> result = run_process(argv, "", std::chrono::seconds(120), &environment_);
        REQUIRE(result.ok());
        REQUIRE(result->end == ProcessResult::End::kExited);
        return *result;
    }
    json document(std::vector<std::string> arguments, int exit_code = 0) const {
        arguments.push_back("--json");
        ProcessResult const result = run(arguments);
        INFO(result.out << result.err);
        CHECK(result.code == exit_code);
        json parsed = json::parse(result.out, nullptr, false);
        REQUIRE(parsed.is_object());
        CHECK(parsed["schema"].get<std::string>().starts_with("xqajit."));
        return parsed;
    }
    std::string write(std::string const& name, std::string const& text) const {
        std::ofstream(folder_ + "/" + name) << text;
        return folder_ + "/" + name;
    }

private:
    std::string folder_;
    std::vector<std::string> environment_;
};

inline std::vector<std::string> with_shape(std::vector<std::string> arguments, std::vector<std::string> const& more = {}) {
    for (char const* part : {"--q-dtype", "bf16", "--num-q-heads", "32", "--num-kv-heads", "8", "--head-dim", "128"})
        arguments.push_back(part);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

inline constexpr char kList[] = R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_kv_heads": 8, "page_size": 64},
  "shapes": [{"name": "a", "num_q_heads": 32, "head_dim": [64, 128]}, {"name": "b", "num_q_heads": 32, "head_dim": 128}]})";

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace xqajit
