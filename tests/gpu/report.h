// What a test program prints and writes to its JSON file.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "gpu/run_and_check.h"

namespace xqajit::testing {

class Report {
public:
    // program: its name; arguments: as typed. The GPU's name, uuid and driver go into the document.
    Report(char const* program, int argc, char** argv, Gpu const& gpu);

    // One check; a skip where its kernels are not built. Prints a line where it failed or was skipped, with `line` to reproduce it.
    void add(Verdict const& verdict, std::string const& name, std::string const& line);
    // Counts a launch under a value of a property; finish() prints a line for each property and writes them as "launches".
    void tally(std::string const& property, std::string const& value) { ++launches_[property][value]; }
    nlohmann::json& document() { return document_; }
    // Writes the file (path "": none), prints the worst errors and "N passed, N failed, N skipped". Returns the exit status: 1 too where nothing passed.
    int finish(std::string const& path);

private:
    nlohmann::json document_;
    Comparison worst_;
    std::map<std::string, std::map<std::string, std::uint64_t>> launches_;
    int passed_ = 0;
    int failed_ = 0;
    int skipped_ = 0;
};

// Writes a document; the failure names the path.
Status write_json(std::string const& path, nlohmann::json const& document);

}  // namespace xqajit::testing
