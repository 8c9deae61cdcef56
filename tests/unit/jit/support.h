// What the tests of this module share.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"
#include "jit/compile_job.h"

namespace xqajit::test {

// Sets (or with a null value unsets) one environment variable for a scope.
class ScopedEnvironment {
public:
    ScopedEnvironment(char const* name, char const* value) : name_(name) {
        char const* const old = getenv(name);
        had_ = old != nullptr;
        if (had_) old_ = old;
        set(value);
    }
    ScopedEnvironment(ScopedEnvironment const&) = delete;
    ScopedEnvironment& operator=(ScopedEnvironment const&) = delete;
    ~ScopedEnvironment() { set(had_ ? old_.c_str() : nullptr); }

private:
    void set(char const* value) {
        if (value)
            setenv(name_, value, 1);
        else
            unsetenv(name_);
    }
    char const* name_;
    bool had_ = false;
    std::string old_;
};

// A folder of its own, removed with what is in it.
class TemporaryFolder {
public:
    TemporaryFolder() {
        char name[] = "/tmp/xqajit-jit-XXXXXX";
        REQUIRE(mkdtemp(name) != nullptr);
        path_ = name;
    }
    TemporaryFolder(TemporaryFolder const&) = delete;
    TemporaryFolder& operator=(TemporaryFolder const&) = delete;
    ~TemporaryFolder() {
        std::string const command = "rm -rf '" + path_ + "'";
        if (system(command.c_str()) != 0) std::fprintf(stderr, "%s could not be removed\n", path_.c_str());
    }
    std::string const& path() const { return path_; }
    std::string write(std::string const& name, std::string const& bytes) const {
        std::string const file = path_ + "/" + name;
        std::ofstream(file, std::ios::binary) << bytes;
        return file;
    }

private:
    std::string path_;
};

inline std::string read_text(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

inline Settings settings_with(std::vector<std::string> const& environment) {
    auto settings = Settings::parse(environment);
    REQUIRE(settings.ok());
    return *settings;
}

inline NvrtcIdentity fake_identity() {
    auto const found = find_nvrtc(settings_with({"XQAJIT_NVRTC_PATH=" + std::string(FAKE_NVRTC)}));
    REQUIRE(found.ok());
    return *found;
}

inline std::shared_ptr<NvrtcLibrary const> open_fake() {
    auto library = NvrtcLibrary::open(fake_identity());
    INFO(library.status().message());
    REQUIRE(library.ok());
    return *library;
}

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

inline CompileJob sample_job(std::string const& target = "sm_90a") {
    return {"mmha " + target,
            target,
            keyed_options(target),
            {{{"XQAJIT_HEAD_DIM", "128"}}},
            {{"mmha/kernel.cu", "entry"}, {"a.cuh", "a"}}};
}

inline KernelSpec sample_spec() {
    KernelSpec spec;
    spec.target = "sm_90a";
    spec.q_dtype = spec.out_dtype = XQAJIT_DTYPE_BF16;
    spec.kv_dtype = XQAJIT_DTYPE_FP8_E4M3;
    spec.numeric = XQAJIT_NUMERIC_EXACT16;
    spec.head_dim = spec.head_dim_v = 128;
    spec.group_size = 8;
    spec.page_size = 32;
    spec.m_tile = 8;
    return spec;
}

}  // namespace xqajit::test
