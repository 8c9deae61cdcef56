// What passes between the library and its worker process: one request in, one result out, each a list of tagged fields.
//   message = magic, { field }         magic = "xqajit-worker-2\n"
//   field   = tag, " ", bytes, "\n", value, "\n"        bytes: decimal length of value, which may hold anything
// The field "end" closes a message, so that a cut one is told from a whole one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/compile_job.h"

namespace xqajit {

struct WorkerRequest {
    NvrtcIdentity nvrtc;  // path and build
    CompileJob job;       // its sources are views of the decoded text
};

std::string encode_request(WorkerRequest const& request);
std::optional<WorkerRequest> decode_request(std::string_view text);  // nothing if malformed or cut

std::string encode_result(Result<CompiledImage> const& result);
std::optional<Result<CompiledImage>> decode_result(std::string_view text);

}  // namespace xqajit
