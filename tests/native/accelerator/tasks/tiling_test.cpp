// Tiles of kernels as tasks, also along axes with nothing.
#include <gtest/gtest.h>

#include "kernloom/tiling.hpp"

namespace kernloom::testing {
namespace {

TEST(Tilings, tasks_are_boxes_that_together_are_everything) {
    const Tiling<2> tiles({{{10, 4}, {100, 10}}}, 5);
    EXPECT_EQ(tiles.tasks(), 6u);
    EXPECT_EQ(tiles.tiles_of_task(), 5u);
    const auto last = tiles.ranges(5);
    EXPECT_EQ(last[0].begin, 8u);
    EXPECT_EQ(last[0].end, 10u);
    EXPECT_EQ(last[1].begin, 50u);
    EXPECT_EQ(last[1].end, 100u);
}

TEST(Tilings, an_empty_axis_has_no_tasks) {
    for (const std::uint64_t group : {0, 1, 8}) {
        const Tiling<2> tiles({{{0, 64}, {256, 64}}}, group);
        EXPECT_EQ(tiles.tasks(), 0u);
        for (const Range &range : tiles.ranges(0))
            EXPECT_LE(range.begin, range.end);
        EXPECT_EQ(tiles.ranges(3)[0].count(), 0u);
    }
    EXPECT_EQ((Axis{0, 64}.part(1, 2).count()), 0u);
}

TEST(Tilings, a_tile_has_at_least_one_element) {
    const Tiling<1> tiles({{{5, 0}}}, 1);
    EXPECT_EQ(tiles.tasks(), 5u);
    EXPECT_EQ(tiles.ranges(4)[0].begin, 4u);
    EXPECT_EQ(tiles.ranges(4)[0].end, 5u);
}

TEST(Tilings, more_tasks_than_can_be_counted) {
    const std::uint64_t many = 1ull << 32;
    EXPECT_EQ((Tiling<1>({{{many, 1}}}, 1).tasks()), UINT32_MAX);
    EXPECT_EQ((Tiling<2>({{{many, 1}, {many, 1}}}, 1).tasks()), UINT32_MAX);
    EXPECT_EQ((Tiling<3>({{{many, 1}, {many, 1}, {0, 1}}}, 1).tasks()), 0u);
    EXPECT_EQ((Axis{~0ull, 2}.tiles()), 1ull << 63);
}

} // namespace
} // namespace kernloom::testing
