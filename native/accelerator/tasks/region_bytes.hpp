// Bytes of regions, found exactly and without a limit: for messages, and where a wrong answer would
// be reported to the user.
#pragma once

#include "region.hpp"

namespace kernloom::tasks {

// A range of bytes; empty: none.
struct ByteRange {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    bool empty() const {
        return begin == end;
    }
};

// The longest range of a region's bytes that starts at `at`.
ByteRange range_at(const RegionView &region, std::uint64_t at);

// The first row, or part of one, that two regions have in common.
ByteRange first_common(const RegionView &a, const RegionView &b);

// Calls visit(begin, end) -> bool for all rows of a region, until it returns false. Returns false
// if it did.
template <class Visit>
bool each_row(const RegionView &region, std::uint32_t at, std::uint64_t base, Visit &visit) {
    if (at == region.dimensions)
        return visit(base, base + region.run);
    const Dimension &dimension = region.dimension[at];
    for (std::uint64_t i = 0; i < dimension.extent; i++)
        if (!each_row(region, at + 1, base + i * dimension.stride, visit))
            return false;
    return true;
}

} // namespace kernloom::tasks
