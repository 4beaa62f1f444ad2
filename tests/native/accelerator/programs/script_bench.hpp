// A device with tensors that are used again for each launch, and tasks for it.
#pragma once

#include "tasks_random.hpp"

namespace script {

inline constexpr Width SMALL_DEVICE = {2, 4, 2, 2};

inline std::uint64_t number_of(const char *name, std::uint64_t usual) {
    const char *count = std::getenv(name);
    return count ? std::strtoull(count, nullptr, 10) : usual;
}

class Launches {
  public:
    explicit Launches(const std::string &runtime, const std::string &overrides = "")
        : device(runtime, overrides) {
        for (std::uint64_t i = 0; i < TENSORS; i++)
            addresses.push_back(device.allocate(ROWS * COLUMNS * 4));
    }

    Answer run(const Script &script) {
        return device.launch(addresses, script.words());
    }

    Device device;
    std::vector<std::uint64_t> addresses;
};

// Two rows of four elements.
inline Part part(std::uint64_t access, std::uint64_t tensor, std::uint64_t offset) {
    return {access, tensor, offset, 2, 4, COLUMNS};
}

inline Submit task(const Part &from, const Part &to) {
    Submit one;
    one.kernel = MATRIX_KERNEL;
    one.parts[0] = from;
    one.parts[1] = to;
    one.parts[2] = {KL_ACCESS_IN, CONSTANT, 0, 0, 0, 0};
    return one;
}

inline const Part NOTHING = {KL_ACCESS_IN, CONSTANT, 0, 0, 0, 0};

inline std::string title(std::uint64_t task) {
    return "task " + std::to_string(task) + " 'matrix'";
}

} // namespace script
