// How much is traced.
#pragma once

#include <cstdint>
#include <string_view>

namespace kernloom {

// 0 to 4, of the values of the settings `trace` and `trace.level`; 0: nothing is traced. A level
// that does not exist is the highest.
inline std::uint32_t trace_level(std::string_view trace, std::string_view level) {
    constexpr std::uint32_t MOST = 4;
    if (trace != "1")
        return 0;
    const bool exists = level.size() == 1 && level[0] >= '0' && level[0] <= '4';
    return exists ? static_cast<std::uint32_t>(level[0] - '0') : MOST;
}

} // namespace kernloom
