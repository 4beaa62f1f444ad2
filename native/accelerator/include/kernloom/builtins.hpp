// Timing models that the core program has built in; a launch refers to them by name.
#pragma once

#include <cstdint>
#include <string_view>

namespace kernloom {

struct BuiltinModel {
    const char *name;
    std::uint32_t arguments;
};

enum Builtin : unsigned { BUILTIN_COPY = 0, BUILTIN_READ = 1, BUILTIN_SPIN = 2, BUILTINS = 3 };

inline constexpr BuiltinModel BUILTIN_MODELS[BUILTINS] = {
    {"copy", 3}, // destination, source, bytes
    {"read", 2}, // source, bytes
    {"spin", 1}, // cycles of the scalar unit
};

// BUILTINS if there is none of that name.
inline unsigned find_builtin(std::string_view name) {
    unsigned place = 0;
    while (place < BUILTINS && name != BUILTIN_MODELS[place].name)
        place++;
    return place;
}

} // namespace kernloom
