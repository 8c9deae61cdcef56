// A root folder with some of the kernel's files, deleted with the object.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"

namespace xqajit::testing {

class PlantedRoot {
public:
    explicit PlantedRoot(std::vector<std::pair<std::string, std::string>> const& files) {
        std::string name = (std::filesystem::temp_directory_path() / "xqajit-root-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
        for (auto const& [file, text] : files) {
            std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
            std::ofstream(path_ + file) << text;
        }
    }
    PlantedRoot(PlantedRoot const&) = delete;
    ~PlantedRoot() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string const& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace xqajit::testing
