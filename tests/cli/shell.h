// The command as a user meets it: a folder of its own, the fake driver and the fake compiler.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/subprocess.h"

namespace xqajit::testing {

class Shell {
public:
    Shell();  // XQAJIT_CACHE_DIR is folder()/cache, which nobody has made
    ~Shell();
    Shell(Shell const&) = delete;

    std::string const& folder() const { return folder_; }         // deleted with the shell
    void set(std::string const& name, std::string const& value);  // an environment variable
    void unset(std::string const& name);
    ProcessResult run(std::vector<std::string> const& arguments) const;
    ProcessResult run_program(std::vector<std::string> const& argv) const;
    Result<ProcessResult> try_program(std::vector<std::string> const& argv) const;  // which may end by a signal
    // With --json: what it prints, which has a schema.
    nlohmann::json document(std::vector<std::string> arguments, int exit_code = 0) const;
    std::string write(std::string const& name, std::string const& text) const;  // the file's path

private:
    std::string folder_;
    std::vector<std::string> environment_;
};

std::vector<std::string> with_shape(std::vector<std::string> arguments, std::vector<std::string> const& more = {});

// Three entries, two kernels an architecture.
inline constexpr char kList[] = R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_kv_heads": 8, "page_size": 64},
  "shapes": [{"name": "a", "num_q_heads": 32, "head_dim": [64, 128]}, {"name": "b", "num_q_heads": 32, "head_dim": 128}]})";

bool contains(std::string const& text, std::string const& part);

}  // namespace xqajit::testing
