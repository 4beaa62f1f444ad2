// Memories, mappings and what translation costs.
#include <gtest/gtest.h>

#include <thread>

#include "device.hpp"

namespace kernloom::testing {

namespace {

std::string read(Device &device, kl_node node, uint64_t address, uint64_t bytes) {
    std::string text(bytes, '?');
    EXPECT_TRUE(
        device.platform->memory_read(device.platform->self, node, address, text.data(), bytes));
    return text;
}

bool write(Device &device, kl_node node, uint64_t address, const std::string &text) {
    return device.platform->memory_write(device.platform->self, node, address, text.data(),
                                         text.size()) != 0;
}

kl_fault load_fault(Device &device, kl_node node, uint64_t address, std::string &text,
                    kl_rows rows) {
    kl_fault fault = {};
    device.platform->load(device.platform->self, node, text.data(), address, &rows, &fault);
    return fault;
}

kl_fault load_fault(Device &device, kl_node node, uint64_t address, std::string &text) {
    const uint64_t bytes = text.size();
    return load_fault(device, node, address, text, {1, bytes, bytes, bytes});
}

} // namespace

TEST(Memory, equal_physical_addresses_on_two_pes_are_distinct) {
    Device device;
    EXPECT_TRUE(write(device, pe(0, 0, 0), 4096, "one"));
    EXPECT_TRUE(write(device, pe(0, 0, 1), 4096, "two"));
    EXPECT_EQ(read(device, pe(0, 0, 0), 4096, 3), "one");
    EXPECT_EQ(read(device, pe(0, 0, 1), 4096, 3), "two");
}

TEST(Memory, unwritten_bytes_read_as_zero) {
    Device device;
    EXPECT_EQ(read(device, pe(0, 1, 2), 123456789, 4), std::string(4, '\0'));
    EXPECT_TRUE(write(device, pe(0, 1, 2), 65535, "ab"));
    EXPECT_EQ(read(device, pe(0, 1, 2), 65534, 4), std::string("\0ab\0", 4));
}

TEST(Memory, what_is_not_inside_is_refused) {
    Device device;
    const uint64_t end = 1073741824;
    EXPECT_TRUE(write(device, pe(0, 0, 0), end - 2, "ab"));
    EXPECT_FALSE(write(device, pe(0, 0, 0), end - 1, "ab"));
    EXPECT_FALSE(write(device, pe(0, 0, 0), UINT64_MAX, "ab"));
    EXPECT_FALSE(write(device, pe(0, 2, 0), 0, "ab"));
    EXPECT_FALSE(write(device, control(0), 0, "ab"));
    EXPECT_FALSE(device.platform->memory_fill(device.platform->self, pe(0, 0, 0), 1, 7, end));
    EXPECT_TRUE(write(device, pe(0, 0, 0), KL_SRAM_BASE + 524286, "ab"));
    EXPECT_FALSE(write(device, pe(0, 0, 0), KL_SRAM_BASE + 524287, "ab"));
}

TEST(Memory, rows_without_bytes_move_nothing_however_many_they_are) {
    Device device;
    std::string text = "kept";
    const kl_rows rows = {1ull << 60, 0, 64, 64};
    for (const uint64_t address : {uint64_t{0}, uint64_t{KL_VIRTUAL_BASE}}) {
        EXPECT_EQ(load_fault(device, pe(0, 0, 0), address, text, rows).reason,
                  uint32_t{KL_FAULT_NONE});
        EXPECT_TRUE(device.platform->store(device.platform->self, pe(0, 0, 0), address, text.data(),
                                           &rows, nullptr));
    }
    EXPECT_EQ(text, "kept");
}

TEST(Memory, fill_sets_every_byte) {
    Device device;
    EXPECT_TRUE(device.platform->memory_fill(device.platform->self, pe(0, 0, 0), 65530, 'x', 12));
    EXPECT_EQ(read(device, pe(0, 0, 0), 65529, 14), std::string("\0xxxxxxxxxxxx\0", 14));
}

TEST(Memory, chunks_are_created_by_several_threads_at_once) {
    Device device;
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; t++) {
        threads.emplace_back([&device, t] {
            for (uint64_t i = 0; i < 200; i++) {
                const uint64_t address = i * 40000 + t * 10000;
                write(device, pe(0, 0, 0), address, std::to_string(address));
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (uint64_t i = 0; i < 800; i++) {
        const std::string text = std::to_string(i * 10000);
        EXPECT_EQ(read(device, pe(0, 0, 0), i * 10000, text.size()), text);
    }
}

TEST(Mmu, before_a_mapping_an_access_faults_and_after_it_translates) {
    Device device;
    write(device, pe(0, 1, 0), 4096, "data");
    std::string text(4, '?');
    kl_fault fault = load_fault(device, pe(0, 0, 0), VIRTUAL + 16, text);
    EXPECT_EQ(fault.reason, uint32_t{KL_FAULT_UNMAPPED});
    EXPECT_EQ(fault.address, VIRTUAL + 16);
    EXPECT_TRUE(device.map(pe(0, 0, 0), {entry(VIRTUAL, 4080, 64, pe(0, 1, 0))}));
    EXPECT_EQ(load_fault(device, pe(0, 0, 0), VIRTUAL + 16, text).reason, uint32_t{KL_FAULT_NONE});
    EXPECT_EQ(text, "data");
    EXPECT_EQ(load_fault(device, pe(0, 0, 1), VIRTUAL + 16, text).reason,
              uint32_t{KL_FAULT_UNMAPPED})
        << "only the PE that was told knows the mapping";
}

TEST(Mmu, replicated_and_sharded_ranges_follow_from_the_entries) {
    Device device;
    for (const kl_node node : {pe(0, 0, 0), pe(0, 1, 1)}) {
        EXPECT_TRUE(device.map(node, {entry(VIRTUAL, 0, 4096, node),
                                      entry(VIRTUAL + 4096, 8192, 8, pe(0, 0, 0)),
                                      entry(VIRTUAL + 4104, 8192, 8, pe(0, 1, 1))}));
    }
    write(device, pe(0, 0, 0), 0, "mine");
    write(device, pe(0, 1, 1), 0, "your");
    write(device, pe(0, 0, 0), 8192, "first___");
    write(device, pe(0, 1, 1), 8192, "second__");
    std::string own(4, '?');
    std::string shards(16, '?');
    load_fault(device, pe(0, 0, 0), VIRTUAL, own);
    EXPECT_EQ(own, "mine");
    load_fault(device, pe(0, 1, 1), VIRTUAL, own);
    EXPECT_EQ(own, "your");
    for (const kl_node node : {pe(0, 0, 0), pe(0, 1, 1)}) {
        load_fault(device, node, VIRTUAL + 4096, shards);
        EXPECT_EQ(shards, "first___second__");
    }
}

TEST(Mmu, an_overlapping_map_is_refused_whole) {
    Device device;
    EXPECT_TRUE(device.map(pe(0, 0, 0), {entry(VIRTUAL + 4096, 0, 4096, pe(0, 0, 0))}));
    EXPECT_FALSE(device.map(pe(0, 0, 0), {entry(VIRTUAL + 65536, 0, 64, pe(0, 0, 0)),
                                          entry(VIRTUAL + 8191, 0, 64, pe(0, 0, 0))}));
    std::string text(1, '?');
    EXPECT_EQ(load_fault(device, pe(0, 0, 0), VIRTUAL + 65536, text).reason,
              uint32_t{KL_FAULT_UNMAPPED});
    EXPECT_FALSE(device.map(pe(0, 0, 0), {entry(VIRTUAL + 65536, 0, 64, pe(0, 0, 0)),
                                          entry(VIRTUAL + 65599, 0, 64, pe(0, 0, 0))}))
        << "entries of one map must not overlap each other";
    EXPECT_FALSE(device.map(pe(0, 0, 0), {entry(VIRTUAL, 0, 0, pe(0, 0, 0))}));
    EXPECT_FALSE(device.map(pe(0, 0, 0), {entry(4096, 0, 64, pe(0, 0, 0))}));
    EXPECT_FALSE(device.map(pe(0, 0, 0), {entry(VIRTUAL, 0, UINT64_MAX, pe(0, 0, 0))}));
    EXPECT_TRUE(device.map(pe(0, 0, 0), {entry(VIRTUAL, 0, 4096, pe(0, 0, 0)),
                                         entry(VIRTUAL + 8192, 0, 64, pe(0, 0, 0))}))
        << "neighbours do not overlap";
}

TEST(Mmu, an_access_across_entries_splits) {
    Device device;
    EXPECT_TRUE(device.map(pe(0, 0, 0), {entry(VIRTUAL, 1000, 4, pe(0, 0, 1)),
                                         entry(VIRTUAL + 4, 2000, 4, pe(0, 1, 2))}));
    const kl_rows rows = {2, 3, 4, 3};
    kl_fault fault = {};
    EXPECT_TRUE(device.platform->store(device.platform->self, pe(0, 0, 0), VIRTUAL + 1, "abcdef",
                                       &rows, &fault));
    EXPECT_EQ(read(device, pe(0, 0, 1), 1000, 4), std::string("\0abc", 4));
    EXPECT_EQ(read(device, pe(0, 1, 2), 2000, 4), std::string("\0def", 4));
}

TEST(Mmu, a_fault_names_the_first_byte_and_what_comes_before_is_copied) {
    Device device;
    EXPECT_TRUE(device.map(pe(0, 0, 0), {entry(VIRTUAL, 0, 4, pe(0, 0, 0))}));
    write(device, pe(0, 0, 0), 0, "abcd");
    std::string text(6, '?');
    const kl_fault fault = load_fault(device, pe(0, 0, 0), VIRTUAL, text);
    EXPECT_EQ(fault.address, VIRTUAL + 4);
    EXPECT_EQ(fault.bytes, 6u);
    EXPECT_EQ(text, "abcd??");
}

TEST(Mmu, a_mapping_outside_the_owners_memory_faults) {
    Device device;
    EXPECT_TRUE(device.map(pe(0, 0, 0), {entry(VIRTUAL, 1073741820, 64, pe(0, 0, 1)),
                                         entry(VIRTUAL + 64, 0, 64, pe(0, 9, 0))}));
    std::string text(8, '?');
    kl_fault fault = load_fault(device, pe(0, 0, 0), VIRTUAL, text);
    EXPECT_EQ(fault.reason, uint32_t{KL_FAULT_PHYSICAL});
    EXPECT_EQ(fault.address, VIRTUAL + 4);
    fault = load_fault(device, pe(0, 0, 0), VIRTUAL + 64, text);
    EXPECT_EQ(fault.reason, uint32_t{KL_FAULT_PHYSICAL});
}

TEST(Mmu, unmapping_a_range_cuts_entries) {
    Device device;
    EXPECT_TRUE(device.map(pe(0, 0, 0), {entry(VIRTUAL, 0, 12, pe(0, 0, 0))}));
    write(device, pe(0, 0, 0), 0, "abcdefghijkl");
    const auto unmap = [&](uint64_t address, uint64_t bytes) {
        return device.platform->mmu_unmap(device.platform->self, pe(0, 0, 0), address, bytes);
    };
    EXPECT_TRUE(unmap(VIRTUAL + 4, 4));
    EXPECT_FALSE(unmap(VIRTUAL + 4, 4)) << "nothing is mapped there any more";
    std::string text(4, '?');
    EXPECT_EQ(load_fault(device, pe(0, 0, 0), VIRTUAL + 4, text).reason,
              uint32_t{KL_FAULT_UNMAPPED});
    load_fault(device, pe(0, 0, 0), VIRTUAL + 8, text);
    EXPECT_EQ(text, "ijkl");
    EXPECT_TRUE(unmap(VIRTUAL, UINT64_MAX));
    EXPECT_EQ(load_fault(device, pe(0, 0, 0), VIRTUAL + 8, text).reason,
              uint32_t{KL_FAULT_UNMAPPED});
}

namespace translation {

constexpr uint64_t PAGE = 2097152;
constexpr uint64_t WITHOUT = 20000 + 118000 + 1000000; // a copy of 96,000 bytes
constexpr uint64_t HIT = 2000;
constexpr uint64_t WALK = 240000;

void map_pages(Device &device, kl_node node, uint64_t pages) {
    device.map(node, {entry(VIRTUAL, 0, pages * PAGE, node)});
}

} // namespace translation

using namespace translation;

TEST(Translation, a_page_is_walked_once_and_then_known) {
    Device device;
    map_pages(device, pe(0, 0, 0), 4);
    const std::vector<kl_action> task = {load(1, VIRTUAL, 96000)};
    EXPECT_EQ(device.time_task(pe(0, 0, 0), task), WITHOUT + HIT + WALK);
    EXPECT_EQ(device.time_task(pe(0, 0, 0), task), WITHOUT + HIT);
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {load(1, VIRTUAL + PAGE - 48000, 96000)}),
              WITHOUT + HIT + WALK)
        << "of two pages one is new";
}

TEST(Translation, rows_on_pages_of_their_own_are_walked_one_after_the_other) {
    Device device;
    map_pages(device, pe(0, 0, 0), 4);
    kl_action rows = load(1, VIRTUAL, 0);
    rows.rows = {4, 24000, PAGE, 24000};
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {rows}), WITHOUT + HIT + 4 * WALK);
}

TEST(Translation, the_least_recently_used_page_makes_room) {
    Device device("mmu.tlb_entries=2\n");
    map_pages(device, pe(0, 0, 0), 4);
    const auto walks = [&](uint64_t page) {
        return (device.time_task(pe(0, 0, 0), {load(1, VIRTUAL + page * PAGE, 96000)}) - WITHOUT -
                HIT) /
               WALK;
    };
    EXPECT_EQ(walks(0), 1u);
    EXPECT_EQ(walks(1), 1u);
    EXPECT_EQ(walks(0), 0u);
    EXPECT_EQ(walks(2), 1u);
    EXPECT_EQ(walks(0), 0u);
    EXPECT_EQ(walks(1), 1u);
}

TEST(Translation, unmapping_forgets_pages) {
    Device device;
    map_pages(device, pe(0, 0, 0), 1);
    device.time_task(pe(0, 0, 0), {load(1, VIRTUAL, 96000)});
    device.platform->mmu_unmap(device.platform->self, pe(0, 0, 0), VIRTUAL, PAGE);
    map_pages(device, pe(0, 0, 0), 1);
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {load(1, VIRTUAL, 96000)}), WITHOUT + HIT + WALK);
}

TEST(Translation, a_copy_across_entries_moves_each_part_over_its_own_path) {
    Device device("links.noc.bandwidth=10\nmmu.hit_ns=0\nmmu.walk_ns=0\n");
    device.map(pe(0, 0, 0), {entry(VIRTUAL, 0, 96000, pe(0, 0, 0)),
                             entry(VIRTUAL + 96000, 0, 20000, pe(0, 1, 0))});
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {load(1, VIRTUAL, 116000)}),
              WITHOUT + 2 * 40000 + 2000000);
}

TEST(Translation, replayed_copies_that_lead_nowhere_still_end) {
    Device device;
    device.map(pe(0, 0, 0),
               {entry(VIRTUAL, 0, 4096, pe(0, 7, 0)), entry(VIRTUAL + 4096, 0, 4096, pe(0, 0, 0))});
    const auto ends = [&](uint64_t address, kl_rows rows) {
        kl_action action = load(1, address, 0);
        action.rows = rows;
        device.time_task(pe(0, 0, 0), {action});
    };
    ends(VIRTUAL, {1, 64, 64, 64});                                  // owned by no PE
    ends(VIRTUAL + 8000, {1, 4096, 4096, 4096});                     // runs out of the mapping
    ends(VIRTUAL + (1 << 30), {1, 64, 64, 64});                      // never mapped
    ends(VIRTUAL, {0, 64, 64, 64});                                  // no rows
    ends(VIRTUAL, {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}); // overflows
    ends(VIRTUAL + 4096, {UINT64_MAX / 128, 64, 0, 1024});           // one row again and again
    EXPECT_EQ(device.at(pe(0, 0, 0)).replayed.size(), 6u);
    EXPECT_EQ(device.run(), 0);
}

TEST(Translation, misses_queue_for_the_walkers_of_the_cube) {
    Device device("hbm.bandwidth=1000\nmmu.walkers=2\n");
    for (uint16_t i = 0; i < 3; i++) {
        map_pages(device, pe(0, 0, i), 1);
        device.replay(pe(0, 0, i), {load(1, VIRTUAL, 96000)});
    }
    map_pages(device, pe(0, 1, 0), 1);
    device.replay(pe(0, 1, 0), {load(1, VIRTUAL, 96000)});
    device.run();
    const auto ended = [&](kl_node node) { return device.at(node).replayed.at(0).second; };
    EXPECT_EQ(ended(pe(0, 0, 0)), WITHOUT + HIT + WALK);
    EXPECT_EQ(ended(pe(0, 0, 1)), WITHOUT + HIT + WALK);
    EXPECT_EQ(ended(pe(0, 0, 2)), WITHOUT + HIT + 2 * WALK);
    EXPECT_EQ(ended(pe(0, 1, 0)), WITHOUT + HIT + WALK) << "another cube has its own walkers";
}

} // namespace kernloom::testing
