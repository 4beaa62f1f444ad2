// Tensors: policies, addresses, and what is said of wrong ones.
#include "tensors.hpp"

#include <gtest/gtest.h>
#include <random>

namespace kernloom::host {

namespace {

class TensorsTest : public testing::Test {
  protected:
    static kl_arch small() {
        kl_arch arch{};
        arch.sips = 1;
        arch.cubes = 2;
        arch.pes = 2;
        arch.hbm_bytes = 1 << 20;
        arch.page_bytes = 1 << 16;
        return arch;
    }

    std::vector<kl_node> all() const {
        std::vector<kl_node> found;
        for (std::uint16_t cube = 0; cube < 2; cube++)
            for (std::uint16_t pe = 0; pe < 2; pe++)
                found.push_back({KL_NODE_PE, 0, cube, pe});
        return found;
    }

    Tensor *place(std::uint64_t bytes, std::uint32_t policy, std::uint64_t unit = 0) {
        return tensors.place({bytes, unit, policy, "x", all(), false}, problem);
    }

    kl_arch arch = small();
    Tensors tensors{arch, 16 << 20};
    Outcome problem;
};

TEST_F(TensorsTest, ShardsTileTheTensorWithoutGapOrOverlap) {
    std::mt19937_64 numbers(1);
    for (int round = 0; round < 500; round++) {
        const std::uint64_t bytes = 1 + numbers() % 100000;
        const std::uint64_t unit = numbers() % 4 ? bytes / 1000 + 1 + numbers() % 5000 : 0;
        Tensor *tensor = place(bytes, KL_POLICY_SHARD, unit);
        ASSERT_NE(tensor, nullptr) << problem.detail;
        std::uint64_t end = 0;
        std::vector<std::vector<bool>> used(4, std::vector<bool>(arch.hbm_bytes / 64));
        for (const Segment &segment : tensor->segments) {
            ASSERT_EQ(segment.offset, end);
            end += segment.bytes;
            ASSERT_LE(segment.physical + segment.bytes, arch.hbm_bytes);
        }
        ASSERT_EQ(end, bytes);
        for (const Segment &a : tensor->segments)
            for (const Segment &b : tensor->segments)
                ASSERT_TRUE(&a == &b || !same_node(a.pe, b.pe) ||
                            a.physical + a.bytes <= b.physical ||
                            b.physical + b.bytes <= a.physical);
        for (const kl_node pe : all())
            ASSERT_EQ(tensor->mappings(pe).size(), tensor->segments.size());
        tensors.release(*tensor);
    }
    for (const kl_node pe : all())
        EXPECT_EQ(tensors.memory(pe).pieces(), 1u);
}

TEST_F(TensorsTest, ReplicatedTensorsMapEachPeToItsOwnCopy) {
    const Tensor *tensor = place(1000, KL_POLICY_REPLICATE);
    ASSERT_NE(tensor, nullptr);
    for (const kl_node pe : all()) {
        const auto mappings = tensor->mappings(pe);
        ASSERT_EQ(mappings.size(), 1u);
        EXPECT_EQ(mappings[0].cube, pe.cube);
        EXPECT_EQ(mappings[0].pe, pe.pe);
        EXPECT_EQ(mappings[0].virtual_address, tensor->address);
    }
}

TEST_F(TensorsTest, AddressesOfFreedTensorsAreNotUsedAgainSoon) {
    Tensor *tensor = place(1000, KL_POLICY_OWNER);
    const std::uint64_t gone = tensor->address;
    tensors.release(*tensor);
    for (int i = 0; i < 1000; i++) {
        Tensor *next = place(1000, KL_POLICY_OWNER);
        ASSERT_NE(next->address, gone);
        tensors.release(*next);
    }
    EXPECT_EQ(tensors.find(gone, 1, problem), nullptr);
    EXPECT_EQ(problem.status, std::uint32_t{KL_STATUS_USE_AFTER_FREE});
    EXPECT_EQ(tensors.find_start(gone, problem), nullptr);
    EXPECT_EQ(problem.status, std::uint32_t{KL_STATUS_DOUBLE_FREE});
    EXPECT_NE(tensors.freed_in(gone + 10, 1), nullptr);
    EXPECT_EQ(tensors.freed_in(gone + 1000, 1), nullptr);
}

TEST_F(TensorsTest, CodeIsAtTheEndAndMovesNoTensor) {
    const Tensor *code =
        tensors.place({70000, 0, KL_POLICY_OWNER, "code", {all().front()}, true}, problem);
    ASSERT_NE(code, nullptr);
    EXPECT_EQ(code->segments[0].physical, ((1 << 20) - 70000) / 4096 * 4096u);
    EXPECT_GT(code->address, KL_SRAM_BASE - (1 << 20));
    const Tensor *tensor = place(100, KL_POLICY_OWNER);
    EXPECT_EQ(tensor->segments[0].physical, 0u);
    EXPECT_EQ(tensor->address, KL_VIRTUAL_BASE);
}

TEST_F(TensorsTest, NothingIsTakenByATensorThatDoesNotFit) {
    EXPECT_EQ(place((1 << 20) + 1, KL_POLICY_OWNER), nullptr);
    EXPECT_NE(problem.detail.find("needs 1048577 bytes on PE 0.0.0, which has 1048576 "
                                  "(arch.hbm.bytes)"),
              std::string::npos)
        << problem.detail;
    Tensor *full =
        tensors.place({1 << 20, 0, KL_POLICY_OWNER, "full", {all().back()}, false}, problem);
    ASSERT_NE(full, nullptr);
    for (const std::uint32_t policy : {KL_POLICY_REPLICATE, KL_POLICY_SHARD})
        EXPECT_EQ(place(1 << 19, policy), nullptr);
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(tensors.memory(all()[static_cast<std::size_t>(i)]).free_bytes(), 1u << 20);
    tensors.release(*full);
    EXPECT_NE(place(4 << 20, KL_POLICY_SHARD), nullptr);
}

TEST_F(TensorsTest, SizesPoliciesAndPlacesThatMakeNoSenseAreRefused) {
    for (const std::uint64_t bytes : {0ull, 1ull << 40, 1ull << 61, ~0ull})
        for (const std::uint32_t policy : {0u, 1u, 2u, 3u, ~0u})
            EXPECT_EQ(place(bytes, policy), nullptr);
    EXPECT_EQ(place(100000, KL_POLICY_SHARD, 1), nullptr);
    EXPECT_NE(place(100, KL_POLICY_SHARD, ~0ull), nullptr);
    EXPECT_EQ(tensors.place({100, 0, KL_POLICY_OWNER, "x", {}, false}, problem), nullptr);
}

TEST_F(TensorsTest, TheNearestTensorOfAnAddressIsNamed) {
    const char *none = "an address that no tensor is near";
    EXPECT_EQ(tensors.nearest(KL_VIRTUAL_BASE), none);
    const Tensor *tensor = place(100, KL_POLICY_OWNER);
    EXPECT_NE(tensors.nearest(tensor->address + 105)
                  .find("outside buffer 'x' of 100 bytes, at "
                        "byte offset 105"),
              std::string::npos);
    EXPECT_NE(tensors.nearest(tensor->address - 7).find("byte offset -7"), std::string::npos);
    // Near: 1 MiB, or the tensor's own size.
    const std::uint64_t last = tensor->address + 99, mebibyte = 1 << 20;
    EXPECT_NE(tensors.nearest(last + mebibyte), none);
    EXPECT_EQ(tensors.nearest(last + mebibyte + 1), none);
    EXPECT_EQ(tensors.nearest(tensor->address + (1ull << 40)), none);
    const Tensor *large = place(3 * mebibyte, KL_POLICY_SHARD);
    ASSERT_NE(large, nullptr);
    const std::uint64_t end = large->address + large->bytes - 1;
    EXPECT_NE(tensors.nearest(end + 3 * mebibyte), none);
    EXPECT_EQ(tensors.nearest(end + 3 * mebibyte + 1), none);
}

} // namespace

} // namespace kernloom::host
