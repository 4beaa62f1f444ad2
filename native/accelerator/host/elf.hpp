// What the host needs to know of a kernel library, without running any of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kernloom::host {

struct Library {
    std::vector<std::string> functions; // exported, in the order of their names
    std::optional<std::uint32_t> core_type;

    // Place of a function; -1 if there is none of that name.
    std::int64_t find(const std::string &name) const;
};

// Reads an ELF file; false and the reason if it is no shared library.
bool read_library(const std::vector<unsigned char> &file, Library &library, std::string &problem);

} // namespace kernloom::host
