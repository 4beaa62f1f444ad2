// Tiles of kernels as tasks: ranges along axes, and boxes of tiles that follow each other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernloom/orchestration.hpp"

namespace kernloom {

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

constexpr uint64_t round_up(uint64_t a, uint64_t b) {
    return ceil_div(a, b) * b;
}

// Elements along one dimension.
struct Range {
    uint64_t begin;
    uint64_t end;

    constexpr uint64_t count() const {
        return end - begin;
    }
    // With further elements on both sides, as far as there are some.
    constexpr Range with_halo(uint64_t before, uint64_t behind, uint64_t extent) const {
        return {begin - std::min(begin, before), std::min(end + behind, extent)};
    }
};

// An axis in tiles; without elements it has none. A tile has at least one element.
struct Axis {
    uint64_t size;
    uint64_t tile;

    constexpr uint64_t tiles() const {
        return ceil_div(size, step());
    }
    constexpr Range range(uint64_t first, uint64_t count) const {
        return {std::min(first * step(), size), std::min((first + count) * step(), size)};
    }
    // One of several nearly equal parts, in whole tiles.
    constexpr Range part(uint64_t number, uint64_t of) const {
        const uint64_t first = tiles() * number / of;
        return range(first, tiles() * (number + 1) / of - first);
    }

  private:
    constexpr uint64_t step() const {
        return std::max<uint64_t>(tile, 1);
    }
};

// A grid of tiles, numbered with the slowest axis first, as tasks of at most `group` tiles that
// follow each other and form a box.
template <std::size_t Axes> class Tiling {
  public:
    Tiling(const std::array<Axis, Axes> &axes, uint64_t group) : axes_(axes) {
        for (std::size_t i = Axes; i-- > 0;) {
            const uint64_t tiles = axes_[i].tiles();
            boxes_[i] = std::max<uint64_t>(std::min(group, tiles), 1);
            while (tiles % boxes_[i])
                boxes_[i]--;
            // Only whole rows can be joined with those beside them.
            group = boxes_[i] == tiles ? group / tiles : 1;
        }
    }

    // None if an axis is empty. More than can be counted are as many as can be: no launch has that
    // many.
    uint32_t tasks() const {
        uint64_t count = 1;
        for (std::size_t i = 0; i < Axes; i++)
            if (along(i) == 0)
                return 0;
        for (std::size_t i = 0; i < Axes; i++)
            if (__builtin_mul_overflow(count, along(i), &count) || count > UINT32_MAX)
                return UINT32_MAX;
        return static_cast<uint32_t>(count);
    }
    uint64_t tiles_of_task() const {
        uint64_t count = 1;
        for (const uint64_t tiles : boxes_)
            count *= tiles;
        return count;
    }
    // The elements of a task along each axis.
    std::array<Range, Axes> ranges(uint64_t task) const {
        std::array<Range, Axes> found{};
        for (std::size_t i = Axes; i-- > 0;) {
            const uint64_t tasks = std::max<uint64_t>(along(i), 1);
            found[i] = axes_[i].range(task % tasks * boxes_[i], boxes_[i]);
            task /= tasks;
        }
        return found;
    }

  private:
    // Tasks along an axis.
    uint64_t along(std::size_t axis) const {
        return axes_[axis].tiles() / boxes_[axis];
    }

    std::array<Axis, Axes> axes_;
    std::array<uint64_t, Axes> boxes_{}; // tiles of a task along each axis
};

// The part of a tensor with these ranges along its dimensions.
inline kl_region part(const Tensor &tensor, std::initializer_list<Range> ranges) {
    kl_region region = tensor.all();
    if (region.dimensions > KL_MAX_DIMENSIONS)
        return region;
    if (ranges.size() > region.dimensions) {
        region.dimensions = KL_WRONG_BOX;
        return region;
    }
    uint32_t i = 0;
    for (const Range &range : ranges) {
        region.offset += range.begin * region.strides[i];
        region.shape[i++] = range.count();
    }
    return region;
}

} // namespace kernloom
