// How a launch is timed: graphs that rotate over copies of its inputs, so that no launch finds them in the L2.
#pragma once

#include <functional>

#include "driver/context.h"

namespace xqajit::measure {

struct Timing {
    double us = 0;  // one launch, median over the replays
    double min_us = 0;
    double max_us = 0;
    int replays = 0;
    int launches = 0;  // in one graph
};

// The device's L2, in bytes.
Result<std::uint64_t> l2_bytes(driver::ContextInfo const& context);
// Copies of `bytes` of input that together pass the L2 four times over: 1..64.
int copies_past_l2(std::uint64_t bytes, std::uint64_t l2_bytes);

// Launch n works on copy n % copies. Waits 200 ms, captures a graph of 2 ms or more, each copy launched as often, and replays it. The stream's context is
// current; launch() is prepared, so that a capture takes it.
Result<Timing> time_rotated(CUstream stream, int copies, std::function<Status(int n)> const& launch);

}  // namespace xqajit::measure
