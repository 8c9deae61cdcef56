// XQAJIT_RECORD_SHAPES: each new shape is added to a shape list that prewarm takes.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "params/xqa_params.h"

namespace xqajit {

// Thread-safe; processes may share the file. A file that can't be read, parsed or written is one warning, never an error of a launch.
class ShapeRecorder {
public:
    explicit ShapeRecorder(std::string path) : path_(std::move(path)) {}  // "": records nothing
    // The file is a valid list before and after: it is replaced, not written into.
    void add(XQAParams const& normalized);

private:
    Status append(std::string const& shape) const;
    std::string const path_;
    std::mutex mutex_;
    std::set<std::string> recorded_;
    bool warned_ = false;
};

}  // namespace xqajit
