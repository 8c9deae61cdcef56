// RunArgs and a plan become what the kernel reads.
#pragma once

#include "kernel_src/common/contract.h"
#include "params/xqa_params.h"
#include "plan/plan.h"

namespace xqajit {

// params and args are normalized and valid; the workspace holds the plan's counters and partials. Host work only.
device::KernelArgs launch_args(XQAParams const& params, RunArgs const& args, LaunchPlan const& plan, std::int32_t division);

}  // namespace xqajit
