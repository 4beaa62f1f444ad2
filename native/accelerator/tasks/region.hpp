// Regions of tensors: parts that are boxes with strides.
#pragma once

#include "transcript.hpp"

namespace kernloom::tasks {

// 0: an unknown element type.
std::uint64_t bytes_of_dtype(std::uint32_t dtype);

// A normalised region on its own.
struct RegionView {
    std::uint64_t begin;
    std::uint64_t run;
    std::uint64_t span;
    std::uint32_t dimensions;
    const Dimension *dimension;

    std::uint64_t end() const {
        return begin + span;
    }
};

inline RegionView view_of(const Transcript &transcript, const Region &region) {
    const Layout &layout = transcript.layouts[region.layout];
    return {region.begin, layout.run, layout.span, layout.dimensions,
            transcript.dimensions.data() + layout.first_dimension};
}

// A layout before it has a place.
struct NewLayout {
    std::uint64_t run = 0;
    std::uint64_t span = 0;
    std::uint32_t dimensions = 0;
    Dimension dimension[KL_MAX_DIMENSIONS] = {};
};

// Normalises the shape of a region: rows that touch become one, dimensions that can be one become
// one. False if it has too many dimensions or more bytes than can be counted.
bool normalise(const kl_region &region, NewLayout &layout);
// The same for a run of bytes that is repeated along dimensions in any order.
bool normalise(std::uint64_t run, const Dimension *dimension, std::uint32_t dimensions,
               NewLayout &layout);

// A tensor's bytes as a box: the byte with offset x has coordinates x / pitch[0], then the rest
// divided by pitch[1] and so on, and what is left at last.
struct Frame {
    std::uint32_t dimensions = 0;
    std::uint64_t pitch[KL_MAX_DIMENSIONS] = {}; // each larger than the next
};

struct Box {
    std::uint64_t low[KL_MAX_DIMENSIONS + 1];
    std::uint64_t high[KL_MAX_DIMENSIONS + 1]; // the last one inside
    bool exact;                                // whether every byte of the box is the region's
};

// The smallest box around a region, or one that is larger if it is not exact.
Box box_of(const Frame &frame, const RegionView &region);

// The frame of the strides of both regions; false if they are too many.
bool common_frame(const RegionView &a, const RegionView &b, Frame &frame);

bool boxes_overlap(const Frame &frame, const Box &a, const Box &b);

// Rows that a comparison looks at, in both regions together, before it gives up.
constexpr std::uint32_t MOST_ROWS = 4096;

// Whether two regions of one tensor have a byte in common. Exact for boxes of a common frame, and
// for all others if that takes at most MOST_ROWS rows; else true.
bool overlap(const RegionView &a, const RegionView &b);

// Whether `a` has every byte of `b`; false if that is hard to say.
bool covers(const RegionView &a, const RegionView &b);

} // namespace kernloom::tasks
