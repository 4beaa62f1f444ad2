// What is left of reads that later writes have replaced in part.
//
// A write waits for a read that it overlaps, and whatever overlaps the write waits for the write:
// what both have in common is of no use any more. A read of tiles and their neighbours is never
// covered by one write, and would be found by every later write else.
#pragma once

#include <vector>

#include "region.hpp"

namespace kernloom::tasks {

class Remains {
  public:
    explicit Remains(const Transcript &transcript) : transcript_(transcript) {
    }

    enum class Left { ALL, NOTHING, OTHER_BYTES, SAME_BYTES };

    // What is left of Transcript::regions[read], as seen by a write: everything, nothing at all,
    // nothing that the write overlaps, or something that it may overlap.
    Left left(std::uint32_t read, const RegionView &write) const;
    // A write that overlaps a read replaces what both have in common. False if nothing is left.
    bool replace(std::uint32_t read, const RegionView &write);

    std::uint64_t bytes() const;

  private:
    static constexpr std::uint32_t UNTOUCHED = 0, GONE = NONE;
    // Boxes of one read; what would give more is left as it is.
    static constexpr std::size_t MOST_BOXES = 32;

    struct Pieces {
        Frame frame;
        std::vector<Box> boxes;
    };

    const Transcript &transcript_;
    Array<std::uint32_t> places_; // by region: UNTOUCHED, GONE, or the place of its pieces + 1
    std::vector<Pieces> pieces_;
    std::vector<std::uint32_t> unused_; // places in pieces_
};

} // namespace kernloom::tasks
