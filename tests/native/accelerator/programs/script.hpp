// Scripts: orchestrations as data, so that one library can submit any tasks. A script goes to the
// orchestration as the values of the launch.
#pragma once

#include <cstdint>
#include <vector>

namespace script {

enum Op : std::uint64_t {
    SUBMIT = 1,
    BARRIER = 2,
    BEGIN_SCOPE = 3,
    END_SCOPE = 4,
    BEGIN_GRAPH = 5,
    END_GRAPH = 6,
    SUBMIT_GRAPH = 7,
    FAIL = 8,
    THROW = 9,
    FLOOD = 10, // submits without end
};

// A tensor argument: rows of columns of int32.
struct Part {
    std::uint64_t access; // enum kl_access
    std::uint64_t tensor; // of the launch; OUTPUT + i: the i-th output of the script
    std::uint64_t offset;
    std::uint64_t rows;
    std::uint64_t columns;
    std::uint64_t stride;
};

constexpr std::uint64_t OUTPUT = 1 << 20;
constexpr std::uint64_t NO_KERNEL = UINT64_MAX;
enum { PARTS = 3 };
// A salt with which a kernel fails.
constexpr std::uint64_t FAILING = 0xBAD5A17;

// What a kernel does with them: part 1 = part 1 * 31 + part 0 * 7 + salt, each row with the row of
// part 0 of the same place (or none); a vector kernel of a mixed task does so with part 2.
struct Submit {
    std::uint64_t kernel = 0; // NO_KERNEL: a dummy
    std::uint64_t vector_kernel = 0;
    std::uint64_t vectors = 0;
    std::uint64_t blocks = 0;
    std::uint64_t sync_start = 0;
    std::uint64_t salt = 0;
    std::uint64_t cycles = 0;
    std::uint64_t launch_salt = 0; // the salt is the launch's value 0
    Part parts[PARTS] = {};
    std::uint64_t predicated = 0; // by an int32
    std::uint64_t predicate_tensor = 0;
    std::uint64_t predicate_element = 0;
    std::uint64_t comparison = 0;
    std::uint64_t compared = 0;
    std::uint64_t after_count = 0;
    std::uint64_t after[4] = {}; // tasks of the script, from 0; also 2^32 - 1: one that is unknown
    // Declarations that are wrong on purpose: a part, from 1, of which the last row is not
    // declared, and one that is declared as input only.
    std::uint64_t shortened = 0;
    std::uint64_t as_input = 0;
};

constexpr std::uint64_t SUBMIT_WORDS = sizeof(Submit) / sizeof(std::uint64_t);
// Arguments of a kernel.
enum { ADDRESSES = PARTS, PER_PART = 3, ARGUMENTS = PARTS * (1 + PER_PART) + 3 };

} // namespace script
