// Overlap of strided regions, compared with sets of bytes.
#include <gtest/gtest.h>

#include "orchestrations.hpp"

namespace kernloom::testing {
namespace {

using namespace tasks;

struct Normalised {
    NewLayout layout;
    RegionView view;

    explicit Normalised(const kl_region &region) {
        EXPECT_TRUE(normalise(region, layout));
        view = {region.offset * bytes_of_dtype(region.dtype), layout.run, layout.span,
                layout.dimensions, layout.dimension};
    }
    Normalised(const Normalised &) = delete;
};

kl_region region_of(std::uint64_t offset, std::vector<std::uint64_t> shape,
                    std::vector<std::uint64_t> strides) {
    kl_region region{};
    region.dtype = KL_DTYPE_FLOAT32;
    region.offset = offset;
    region.dimensions = static_cast<std::uint32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), region.shape);
    std::copy(strides.begin(), strides.end(), region.strides);
    return region;
}

TEST(Regions, normalised_have_the_same_bytes) {
    std::mt19937_64 random(1);
    RandomRegions regions(random, MOST_BYTES);
    for (int i = 0; i < 50000; i++) {
        const kl_region region = regions.next();
        const Normalised normalised(region);
        const Bytes bytes = bytes_of(region);
        ASSERT_EQ(bytes_of(normalised.view), bytes);
        if (bytes.any()) {
            ASSERT_TRUE(bytes.test(normalised.view.begin));
            ASSERT_TRUE(bytes.test(normalised.view.end() - 1));
        }
    }
}

TEST(Regions, overlap_is_that_of_their_bytes) {
    std::mt19937_64 random(2);
    RandomRegions regions(random, 1024);
    int overlapping = 0, covering = 0;
    for (int i = 0; i < 300000; i++) {
        const kl_region a = regions.next(), b = regions.next();
        const Normalised left(a), right(b);
        const Bytes in_a = bytes_of(left.view), in_b = bytes_of(right.view);
        const bool expected = (in_a & in_b).any();
        ASSERT_EQ(overlap(left.view, right.view), expected) << i;
        ASSERT_EQ(overlap(right.view, left.view), expected) << i;
        overlapping += expected;
        if (covers(left.view, right.view)) {
            ASSERT_TRUE((in_b & ~in_a).none()) << i;
            covering++;
        }
    }
    EXPECT_GT(overlapping, 10000);
    EXPECT_GT(covering, 1000);
}

TEST(Regions, a_box_lies_inside_its_frame) {
    std::mt19937_64 random(3);
    RandomRegions regions(random, 1024);
    for (int i = 0; i < 50000; i++) {
        const kl_region region = regions.next();
        const Normalised normalised(region);
        const Bytes bytes = bytes_of(region);
        if (bytes.none())
            continue;
        Frame frame;
        frame.dimensions = static_cast<std::uint32_t>(regions.below(3));
        frame.pitch[0] = 40 + regions.below(4) * 24;
        frame.pitch[1] = 4 + regions.below(4) * 4;
        const Box box = box_of(frame, normalised.view);
        for (std::uint64_t at = 0; at < 1024; at++) {
            std::uint64_t rest = at;
            bool inside = true;
            for (std::uint32_t axis = 0; axis <= frame.dimensions; axis++) {
                const std::uint64_t pitch = axis < frame.dimensions ? frame.pitch[axis] : 1;
                inside &= rest / pitch >= box.low[axis] && rest / pitch <= box.high[axis];
                rest %= pitch;
            }
            ASSERT_TRUE(inside || !bytes.test(at)) << i;
            ASSERT_TRUE(bytes.test(at) || !inside || !box.exact) << i;
        }
    }
}

TEST(Regions, whole_tensors_are_one_run) {
    const Normalised whole(region_of(0, {4, 5, 6}, {30, 6, 1}));
    EXPECT_EQ(whole.layout.dimensions, 0u);
    EXPECT_EQ(whole.layout.run, 480u);
    const Normalised rows(region_of(30, {2, 5, 6}, {30, 6, 1}));
    EXPECT_EQ(rows.layout.dimensions, 0u);
    EXPECT_EQ(rows.view.begin, 120u);
    const Normalised planes(region_of(0, {4, 5, 3}, {30, 6, 1}));
    EXPECT_EQ(planes.layout.dimensions, 1u) << "20 rows at equal distances";
    const Normalised repeated(region_of(0, {8, 6}, {0, 1}));
    EXPECT_EQ(repeated.layout.run, 24u) << "a stride of 0 repeats the same bytes";
}

// Tiles of a common tensor are compared as boxes, however many rows they have.
TEST(Regions, large_tiles_are_exact) {
    constexpr std::uint64_t rows = 1 << 20, pitch = 1 << 12;
    const Normalised left(region_of(0, {rows, 64}, {pitch, 1}));
    const Normalised right(region_of(64, {rows, 64}, {pitch, 1}));
    const Normalised both(region_of(63, {rows, 2}, {pitch, 1}));
    EXPECT_FALSE(overlap(left.view, right.view));
    EXPECT_TRUE(overlap(left.view, both.view));
    EXPECT_TRUE(overlap(both.view, right.view));
    const Normalised row(region_of(pitch * 1000 + 32, {1, 32}, {pitch, 1}));
    EXPECT_TRUE(overlap(left.view, row.view));
    EXPECT_FALSE(overlap(right.view, row.view));
}

// Elements at even and at odd places, of different frames.
TEST(Regions, different_frames_are_exact_up_to_some_thousand_rows) {
    for (const std::uint64_t rows : {200, 20000}) {
        const Normalised even(region_of(0, {rows, 2}, {6, 2}));
        const Normalised odd(region_of(1, {rows, 2}, {10, 4}));
        EXPECT_EQ(overlap(even.view, odd.view), rows > MOST_ROWS);
        EXPECT_EQ(overlap(odd.view, even.view), rows > MOST_ROWS);
    }
}

TEST(Regions, too_large_to_be_counted) {
    NewLayout layout;
    EXPECT_FALSE(normalise(region_of(0, {1ull << 40, 1ull << 40}, {1ull << 40, 1}), layout));
    EXPECT_FALSE(normalise(region_of(0, {2}, {1ull << 63}), layout));
    kl_region region = region_of(0, {}, {});
    region.dimensions = 5;
    EXPECT_FALSE(normalise(region, layout));
}

} // namespace
} // namespace kernloom::testing
