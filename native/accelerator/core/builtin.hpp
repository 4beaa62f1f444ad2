// Built-in timing models: kernels that need no code on the device.
#pragma once

#include "kernloom/builtins.hpp"
#include "kernloom/core.h"

namespace kernloom::core {

kl_core_entry_function builtin_entry(unsigned builtin);

} // namespace kernloom::core
