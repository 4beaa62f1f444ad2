#include "region.hpp"

#include <algorithm>

namespace kernloom::tasks {

namespace {

// Whether a part of a region, from dimension `at` on and beginning at `base`, has a byte in
// [low, high). `rows` is how many more places may be looked at; true when they are used up.
bool touches(const RegionView &region, std::uint32_t at, std::uint64_t base, std::uint64_t span,
             std::uint64_t low, std::uint64_t high, std::uint32_t &rows) {
    if (base >= high || base + span <= low)
        return false;
    if (at == region.dimensions || (base >= low && base + span <= high))
        return true;
    const Dimension &dimension = region.dimension[at];
    const std::uint64_t inner = span - (dimension.extent - 1) * dimension.stride;
    // The first one that ends behind `low`, and the last one that begins before `high`.
    const std::uint64_t first =
        low >= base + inner ? (low - base - inner) / dimension.stride + 1 : 0;
    const std::uint64_t last = std::min(dimension.extent - 1, (high - 1 - base) / dimension.stride);
    for (std::uint64_t i = first; i <= last; i++) {
        if (!rows)
            return true;
        rows--;
        if (touches(region, at + 1, base + i * dimension.stride, inner, low, high, rows))
            return true;
    }
    return false;
}

// Whether a row of the part of `a` has a byte of `b`.
bool rows_touch(const RegionView &a, std::uint32_t at, std::uint64_t base, std::uint64_t span,
                const RegionView &b, std::uint32_t &rows) {
    if (base >= b.end() || base + span <= b.begin)
        return false;
    if (at == a.dimensions)
        return touches(b, 0, b.begin, b.span, base, base + span, rows);
    const Dimension &dimension = a.dimension[at];
    const std::uint64_t inner = span - (dimension.extent - 1) * dimension.stride;
    const std::uint64_t first =
        b.begin >= base + inner ? (b.begin - base - inner) / dimension.stride + 1 : 0;
    const std::uint64_t last =
        std::min(dimension.extent - 1, (b.end() - 1 - base) / dimension.stride);
    for (std::uint64_t i = first; i <= last; i++) {
        if (!rows)
            return true;
        rows--;
        if (rows_touch(a, at + 1, base + i * dimension.stride, inner, b, rows))
            return true;
    }
    return false;
}

// Enough to compare; it may be too large to count.
std::uint64_t rows_of(const RegionView &region) {
    std::uint64_t rows = 1;
    for (std::uint32_t i = 0; i < region.dimensions; i++)
        if (__builtin_mul_overflow(rows, region.dimension[i].extent, &rows))
            return ~0ull;
    return rows;
}

bool same_shape(const RegionView &a, const RegionView &b) {
    if (a.run != b.run || a.span != b.span || a.dimensions != b.dimensions)
        return false;
    for (std::uint32_t i = 0; i < a.dimensions; i++)
        if (a.dimension[i].extent != b.dimension[i].extent ||
            a.dimension[i].stride != b.dimension[i].stride)
            return false;
    return true;
}

} // namespace

std::uint64_t bytes_of_dtype(std::uint32_t dtype) {
    switch (dtype) {
    case KL_DTYPE_FLOAT32:
    case KL_DTYPE_INT32:
        return 4;
    case KL_DTYPE_FLOAT64:
    case KL_DTYPE_INT64:
        return 8;
    case KL_DTYPE_UINT8:
        return 1;
    default:
        return 0;
    }
}

bool normalise(const kl_region &region, NewLayout &layout) {
    layout = {};
    if (region.dimensions > KL_MAX_DIMENSIONS)
        return false;
    const std::uint64_t item = bytes_of_dtype(region.dtype);
    Dimension dimension[KL_MAX_DIMENSIONS];
    for (std::uint32_t i = 0; i < region.dimensions; i++) {
        if (region.shape[i] == 0)
            return true;
        dimension[i].extent = region.shape[i];
        // Strides of dimensions without a second element do not matter.
        if (region.shape[i] == 1)
            dimension[i].stride = 0;
        else if (__builtin_mul_overflow(region.strides[i], item, &dimension[i].stride))
            return false;
    }
    return normalise(item, dimension, region.dimensions, layout);
}

bool normalise(std::uint64_t run, const Dimension *dimension, std::uint32_t dimensions,
               NewLayout &layout) {
    layout = {};
    Dimension sorted[KL_MAX_DIMENSIONS + 1];
    std::uint32_t count = 0;
    std::uint64_t span = run;
    for (std::uint32_t i = 0; i < dimensions; i++) {
        const Dimension one = dimension[i];
        std::uint64_t length;
        if (__builtin_mul_overflow(one.extent - 1, one.stride, &length) ||
            __builtin_add_overflow(span, length, &span))
            return false;
        if (one.extent == 1 || one.stride == 0)
            continue;
        std::uint32_t at = count++;
        for (; at > 0 && sorted[at - 1].stride < one.stride; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = one;
    }
    // Rows that touch are one.
    while (count && sorted[count - 1].stride <= run) {
        count--;
        run += (sorted[count].extent - 1) * sorted[count].stride;
    }
    // A dimension that goes on where the next one ends is one with it.
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < count; i++) {
        const Dimension one = sorted[i];
        Dimension *const before = kept ? &sorted[kept - 1] : nullptr;
        if (before && before->stride % one.stride == 0 && before->stride / one.stride == one.extent)
            *before = {before->extent * one.extent, one.stride};
        else if (before && before->stride == one.stride)
            before->extent += one.extent - 1;
        else
            sorted[kept++] = one;
    }
    if (kept > KL_MAX_DIMENSIONS)
        return false;
    layout.run = run;
    layout.span = span;
    layout.dimensions = kept;
    std::copy(sorted, sorted + kept, layout.dimension);
    return true;
}

Box box_of(const Frame &frame, const RegionView &region) {
    Box box;
    box.exact = true;
    std::uint64_t rest = region.begin, span = region.span;
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < frame.dimensions; i++) {
        const std::uint64_t pitch = frame.pitch[i];
        const std::uint64_t low = rest / pitch, inside = rest - low * pitch;
        box.low[i] = low;
        if (next < region.dimensions && region.dimension[next].stride == pitch) {
            const std::uint64_t extent = region.dimension[next].extent;
            const std::uint64_t inner = span - (extent - 1) * pitch;
            if (inside + inner <= pitch) {
                box.high[i] = low + extent - 1;
                next++;
                span = inner;
                rest = inside;
                continue;
            }
        } else if (inside + span <= pitch) {
            box.high[i] = low;
            rest = inside;
            continue;
        }
        // Several rows: all of each.
        box.high[i] = (rest + span - 1) / pitch;
        box.exact = next == region.dimensions && inside == 0 && span % pitch == 0;
        for (std::uint32_t j = i + 1; j <= frame.dimensions; j++) {
            const std::uint64_t whole = frame.pitch[j - 1];
            box.low[j] = 0;
            box.high[j] = j < frame.dimensions ? (whole - 1) / frame.pitch[j] : whole - 1;
        }
        return box;
    }
    box.low[frame.dimensions] = rest;
    box.high[frame.dimensions] = rest + span - 1;
    box.exact = next == region.dimensions;
    return box;
}

bool common_frame(const RegionView &a, const RegionView &b, Frame &frame) {
    frame.dimensions = 0;
    for (std::uint32_t i = 0, j = 0; i < a.dimensions || j < b.dimensions;) {
        const std::uint64_t in_a = i < a.dimensions ? a.dimension[i].stride : 0;
        const std::uint64_t in_b = j < b.dimensions ? b.dimension[j].stride : 0;
        const std::uint64_t pitch = std::max(in_a, in_b);
        i += in_a == pitch;
        j += in_b == pitch;
        if (frame.dimensions == KL_MAX_DIMENSIONS)
            return false;
        frame.pitch[frame.dimensions++] = pitch;
    }
    return true;
}

bool boxes_overlap(const Frame &frame, const Box &a, const Box &b) {
    for (std::uint32_t i = 0; i <= frame.dimensions; i++)
        if (a.low[i] > b.high[i] || b.low[i] > a.high[i])
            return false;
    return true;
}

bool overlap(const RegionView &a, const RegionView &b) {
    if (a.begin >= b.end() || b.begin >= a.end() || !a.span || !b.span)
        return false;
    if ((!a.dimensions && !b.dimensions) || a.begin == b.begin)
        return true;
    std::uint32_t rows = MOST_ROWS;
    if (!a.dimensions)
        return touches(b, 0, b.begin, b.span, a.begin, a.end(), rows);
    if (!b.dimensions)
        return touches(a, 0, a.begin, a.span, b.begin, b.end(), rows);
    Frame frame;
    if (common_frame(a, b, frame)) {
        const Box box_a = box_of(frame, a), box_b = box_of(frame, b);
        if (!boxes_overlap(frame, box_a, box_b))
            return false;
        if (box_a.exact && box_b.exact)
            return true;
    }
    return rows_of(a) <= rows_of(b) ? rows_touch(a, 0, a.begin, a.span, b, rows)
                                    : rows_touch(b, 0, b.begin, b.span, a, rows);
}

bool covers(const RegionView &a, const RegionView &b) {
    if (!b.span)
        return true;
    if (b.begin < a.begin || b.end() > a.end())
        return false;
    if (!a.dimensions || (a.begin == b.begin && same_shape(a, b)))
        return true;
    Frame frame;
    if (!common_frame(a, b, frame))
        return false;
    const Box box_a = box_of(frame, a), box_b = box_of(frame, b);
    if (!box_a.exact)
        return false;
    for (std::uint32_t i = 0; i <= frame.dimensions; i++)
        if (box_b.low[i] < box_a.low[i] || box_b.high[i] > box_a.high[i])
            return false;
    return true;
}

} // namespace kernloom::tasks
