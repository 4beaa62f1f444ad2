// Built-in timing models: kernels that need no code on the device.
#pragma once

#include <string_view>

#include "kernloom/core.h"

namespace kernloom::core {

struct Builtin {
    const char *name;
    unsigned arguments;
    kl_core_entry_function entry;
};

// Null if there is none of that name.
const Builtin *find_builtin(std::string_view name);

} // namespace kernloom::core
