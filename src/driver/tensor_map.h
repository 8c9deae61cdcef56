// Descriptions of tensors become what a kernel's copies take.
#pragma once

#include "plan/tensor_map.h"

namespace xqajit::driver {

// base: the tensor's device address, on 16 bytes. Host work alone. DRIVER_ERROR says what was described, and leaves `map` as it was.
// Thread-safe.
Status encode_tensor_map(TensorMapDescription const& description, void const* base, device::TensorMap& map);

}  // namespace xqajit::driver
