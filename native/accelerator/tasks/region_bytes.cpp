#include "region_bytes.hpp"

#include <algorithm>

namespace kernloom::tasks {

namespace {

// The end of the longest row that has byte `at`, or 0.
std::uint64_t row_end(const RegionView &region, std::uint32_t dimension, std::uint64_t base,
                      std::uint64_t span, std::uint64_t at) {
    if (at < base || at >= base + span)
        return 0;
    if (dimension == region.dimensions)
        return base + span;
    const Dimension &one = region.dimension[dimension];
    const std::uint64_t inner = span - (one.extent - 1) * one.stride;
    const std::uint64_t first = at >= base + inner ? (at - base - inner) / one.stride + 1 : 0;
    const std::uint64_t last = std::min(one.extent - 1, (at - base) / one.stride);
    std::uint64_t end = 0;
    for (std::uint64_t i = first; i <= last; i++)
        end = std::max(end, row_end(region, dimension + 1, base + i * one.stride, inner, at));
    return end;
}

// The first byte of the region in [low, high), or `high`.
std::uint64_t first_byte(const RegionView &region, std::uint32_t dimension, std::uint64_t base,
                         std::uint64_t span, std::uint64_t low, std::uint64_t high) {
    if (base >= high || base + span <= low)
        return high;
    if (dimension == region.dimensions)
        return std::max(base, low);
    const Dimension &one = region.dimension[dimension];
    const std::uint64_t inner = span - (one.extent - 1) * one.stride;
    const std::uint64_t first = low >= base + inner ? (low - base - inner) / one.stride + 1 : 0;
    const std::uint64_t last = std::min(one.extent - 1, (high - 1 - base) / one.stride);
    std::uint64_t found = high;
    for (std::uint64_t i = first; i <= last && base + i * one.stride < found; i++)
        found = std::min(
            found, first_byte(region, dimension + 1, base + i * one.stride, inner, low, found));
    return found;
}

} // namespace

ByteRange range_at(const RegionView &region, std::uint64_t at) {
    const std::uint64_t end = row_end(region, 0, region.begin, region.span, at);
    return end ? ByteRange{at, end} : ByteRange{};
}

ByteRange first_common(const RegionView &a, const RegionView &b) {
    ByteRange found;
    if (!a.span || !b.span)
        return found;
    auto visit = [&](std::uint64_t begin, std::uint64_t end) {
        const std::uint64_t at = first_byte(b, 0, b.begin, b.span, begin, end);
        if (at == end)
            return true;
        found = {at, std::min(end, range_at(b, at).end)};
        return false;
    };
    each_row(a, 0, a.begin, visit);
    return found;
}

} // namespace kernloom::tasks
