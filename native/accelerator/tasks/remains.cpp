#include "remains.hpp"

#include <algorithm>

namespace kernloom::tasks {

namespace {

// Appends the parts of a box that are outside of another one, which it overlaps.
void subtract(const Frame &frame, Box box, const Box &other, std::vector<Box> &parts) {
    for (std::uint32_t i = 0; i <= frame.dimensions; i++) {
        if (box.low[i] < other.low[i]) {
            Box part = box;
            part.high[i] = other.low[i] - 1;
            box.low[i] = other.low[i];
            parts.push_back(part);
        }
        if (box.high[i] > other.high[i]) {
            Box part = box;
            part.low[i] = other.high[i] + 1;
            box.high[i] = other.high[i];
            parts.push_back(part);
        }
    }
}

} // namespace

Remains::Left Remains::left(std::uint32_t read, const RegionView &write) const {
    const std::uint32_t place = read < places_.size() ? places_[read] : UNTOUCHED;
    if (place == UNTOUCHED)
        return Left::ALL;
    if (place == GONE)
        return Left::NOTHING;
    const Pieces &pieces = pieces_[place - 1];
    const Box box = box_of(pieces.frame, write);
    return std::any_of(pieces.boxes.begin(), pieces.boxes.end(),
                       [&](const Box &one) { return boxes_overlap(pieces.frame, one, box); })
               ? Left::SAME_BYTES
               : Left::OTHER_BYTES;
}

bool Remains::replace(std::uint32_t read, const RegionView &write) {
    if (read >= places_.size())
        places_.resize(transcript_.regions.size());
    std::uint32_t &place = places_[read];
    if (place == UNTOUCHED) {
        const RegionView view = view_of(transcript_, transcript_.regions[read]);
        Pieces fresh;
        if (!common_frame(view, write, fresh.frame))
            return true;
        fresh.boxes.push_back(box_of(fresh.frame, view));
        if (!box_of(fresh.frame, write).exact)
            return true;
        if (unused_.empty()) {
            unused_.push_back(static_cast<std::uint32_t>(pieces_.size()));
            pieces_.emplace_back();
        }
        place = unused_.back() + 1;
        unused_.pop_back();
        pieces_[place - 1] = std::move(fresh);
    }
    Pieces &pieces = pieces_[place - 1];
    const Box box = box_of(pieces.frame, write);
    if (!box.exact)
        return true;
    std::vector<Box> kept;
    for (const Box &one : pieces.boxes)
        if (boxes_overlap(pieces.frame, one, box))
            subtract(pieces.frame, one, box, kept);
        else
            kept.push_back(one);
    if (kept.size() > MOST_BOXES)
        return true;
    pieces.boxes = std::move(kept);
    if (!pieces.boxes.empty())
        return true;
    unused_.push_back(place - 1);
    pieces = {};
    place = GONE;
    return false;
}

std::uint64_t Remains::bytes() const {
    std::uint64_t bytes = places_.bytes() + pieces_.size() * sizeof(Pieces);
    for (const Pieces &pieces : pieces_)
        bytes += pieces.boxes.size() * sizeof(Box);
    return bytes;
}

} // namespace kernloom::tasks
