// The allocator of address ranges.
#include "free_list.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace kernloom::host {

namespace {

struct Range {
    std::uint64_t start;
    std::uint64_t bytes;
};

TEST(FreeList, CoalescesInAnyOrderOfFrees) {
    std::vector<unsigned> order = {0, 1, 2, 3, 4};
    do {
        FreeList list(4096, 500);
        std::vector<std::uint64_t> starts;
        for (int i = 0; i < 5; i++)
            starts.push_back(*list.allocate(100, 1));
        EXPECT_FALSE(list.allocate(1, 1));
        for (const unsigned i : order)
            ASSERT_TRUE(list.release(starts[i], 100));
        EXPECT_EQ(list.pieces(), 1u);
        EXPECT_EQ(list.largest(), 500u);
        EXPECT_EQ(*list.allocate(500, 1), 4096u);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST(FreeList, RangesAreAlignedInsideAndDisjointWhateverHappens) {
    std::mt19937_64 numbers(1);
    for (int round = 0; round < 50; round++) {
        FreeList list(1 << 20, 1 << 20);
        std::vector<Range> taken;
        for (int step = 0; step < 500; step++) {
            if (numbers() % 3 && !taken.empty()) {
                const std::size_t at = numbers() % taken.size();
                ASSERT_TRUE(list.release(taken[at].start, taken[at].bytes));
                ASSERT_FALSE(list.release(taken[at].start, taken[at].bytes));
                taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(at));
                continue;
            }
            const std::uint64_t bytes = 1 + numbers() % 50000, alignment = 1ull << numbers() % 13;
            const unsigned way = numbers() % 3;
            const auto start = way == 0   ? list.allocate(bytes, alignment)
                               : way == 1 ? list.allocate_next(bytes, alignment)
                                          : list.allocate_last(bytes, alignment);
            if (!start)
                continue;
            ASSERT_EQ(*start % alignment, 0u);
            ASSERT_GE(*start, 1u << 20);
            ASSERT_LE(*start + bytes, 2u << 20);
            for (const Range &other : taken)
                ASSERT_TRUE(*start + bytes <= other.start || other.start + other.bytes <= *start);
            taken.push_back({*start, bytes});
        }
        std::uint64_t used = 0;
        for (const Range &range : taken)
            used += range.bytes;
        EXPECT_EQ(list.free_bytes(), (1u << 20) - used);
        for (const Range &range : taken)
            ASSERT_TRUE(list.release(range.start, range.bytes));
        EXPECT_EQ(list.pieces(), 1u);
        EXPECT_EQ(list.largest(), 1u << 20);
    }
}

TEST(FreeList, WhatIsNotAllocatedCannotBeFreed) {
    FreeList list(100, 100);
    ASSERT_EQ(*list.allocate(50, 1), 100u);
    EXPECT_FALSE(list.release(150, 10));
    EXPECT_FALSE(list.release(140, 20));
    EXPECT_FALSE(list.release(90, 10));
    EXPECT_FALSE(list.release(90, 20));
    EXPECT_FALSE(list.release(100, 0));
    EXPECT_FALSE(list.release(100, ~0ull));
    EXPECT_FALSE(list.release(~0ull, 10));
    EXPECT_TRUE(list.release(110, 10));
    EXPECT_FALSE(list.release(100, 50));
    EXPECT_TRUE(list.release(100, 10));
    EXPECT_TRUE(list.release(120, 30));
    EXPECT_EQ(list.pieces(), 1u);
}

TEST(FreeList, TheNextRangeIsUsedAgainAsLateAsPossible) {
    FreeList list(0, 1000);
    const auto first = *list.allocate_next(100, 1);
    ASSERT_TRUE(list.release(first, 100));
    for (std::uint64_t at = 100; at < 1000; at += 100) {
        const auto next = *list.allocate_next(100, 1);
        EXPECT_EQ(next, at);
        ASSERT_TRUE(list.release(next, 100));
    }
    EXPECT_EQ(*list.allocate_next(100, 1), first);
}

TEST(FreeList, ImpossibleRequestsAreRefused) {
    FreeList list(~0ull - 1000, 1000);
    EXPECT_FALSE(list.allocate(0, 1));
    EXPECT_FALSE(list.allocate(10, 0));
    EXPECT_FALSE(list.allocate(1001, 1));
    EXPECT_FALSE(list.allocate(~0ull, 1));
    EXPECT_FALSE(list.allocate(10, 1ull << 63));
    EXPECT_FALSE(FreeList(0, 0).allocate(1, 1));
    EXPECT_EQ(list.free_bytes(), 1000u);
}

} // namespace

} // namespace kernloom::host
