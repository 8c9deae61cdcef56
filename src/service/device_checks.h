// XQAJIT_DEBUG: what a launch's device data must satisfy.
#pragma once

#include <cstdint>
#include <span>

#include "driver/context.h"
#include "params/xqa_params.h"

namespace xqajit {

// Waits for the stream, copies lengths and draft lengths back and checks them. The stream's context is current and not capturing.
// INVALID_ARGUMENT names the request and both numbers.
Status check_device_data(XQAParams const& params, RunArgs const& args, CUstream stream);

// The same checks on host copies. cu_q_len may be empty.
Status check_lengths(XQAParams const& params, RunArgs const& args, std::span<std::int32_t const> seq_lens,
                     std::span<std::int32_t const> cu_q_len);

}  // namespace xqajit
