// XQAJIT_RECORD_SHAPES: each new shape is added to a shape list that prewarm takes.
#pragma once

#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "params/xqa_params.h"

namespace xqajit {

// Thread-safe; processes may share the file. A file that can't be locked, read, parsed or written is left as it is: one warning, never
// an error of a launch. What could not be written is written together with the next new shape.
class ShapeRecorder {
public:
    explicit ShapeRecorder(std::string path) : path_(std::move(path)) {}  // "": records nothing
    // params: normalized and valid. The file is a valid list before and after: it is replaced, not written into.
    void add(XQAParams const& params);

private:
    Status append_pending(std::chrono::milliseconds patience) const;
    std::string const path_;
    std::mutex mutex_;
    std::set<std::string> seen_;
    std::vector<XQAParams> pending_;  // seen, and not in the file
    bool warned_ = false;
};

}  // namespace xqajit
