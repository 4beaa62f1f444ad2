// What a kernel does is done at once, and recorded; after a failure it goes on without effect.
#include "recorder.hpp"

#include <gtest/gtest.h>

namespace kernloom::core {

namespace {

// A platform with 4 KiB of memory at the first virtual address, and nothing else.
class RecorderTest : public testing::Test {
  protected:
    RecorderTest() {
        arch.pes = 1;
        arch.core_types[0] = KL_CORE_VECTOR;
        arch.sram_bytes = 1024;
        arch.rates[KL_CORE_VECTOR][KL_UNIT_VECTOR][KL_DTYPE_FLOAT32] = 8;
        arch.unit_startup_cycles[KL_UNIT_VECTOR] = 5;
        platform.arch = &arch;
        platform.self = this;
        platform.load = [](void *self, kl_node, void *to, std::uint64_t from, const kl_rows *rows,
                           kl_fault *fault) {
            return static_cast<RecorderTest *>(self)->access(static_cast<unsigned char *>(to), from,
                                                             *rows, *fault, true);
        };
        platform.store = [](void *self, kl_node, std::uint64_t to, const void *from,
                            const kl_rows *rows, kl_fault *fault) {
            auto *data = static_cast<unsigned char *>(const_cast<void *>(from));
            return static_cast<RecorderTest *>(self)->access(data, to, *rows, *fault, false);
        };
    }

    int access(unsigned char *sram, std::uint64_t address, const kl_rows &rows, kl_fault &fault,
               bool load) {
        for (std::uint64_t row = 0; row < rows.rows; row++)
            for (std::uint64_t i = 0; i < rows.bytes; i++) {
                const std::uint64_t at = address + row * rows.device_stride + i;
                if (at - KL_VIRTUAL_BASE >= sizeof memory) {
                    fault = {at, rows.bytes, KL_FAULT_UNMAPPED};
                    return 0;
                }
                unsigned char &device = memory[at - KL_VIRTUAL_BASE];
                unsigned char &local = sram[row * rows.sram_stride + i];
                (load ? local : device) = load ? device : local;
            }
        return 1;
    }

    const std::uint64_t base[1] = {KL_VIRTUAL_BASE};
    kl_arch arch{};
    kl_platform platform{};
    unsigned char memory[4096] = {};
    Sram sram{1024};
    Recorder recorder{platform, {KL_NODE_PE, 0, 0, 0}, sram, "task 1 'x'"};
};

TEST_F(RecorderTest, RecordsCopiesWaitsAndChargesInOrder) {
    memory[64] = 7;
    recorder.run(
        [](kl_core *core, const std::uint64_t *args) {
            auto *data = static_cast<unsigned char *>(kl_allocate(core, 100));
            auto *more = static_cast<unsigned char *>(kl_allocate(core, 100));
            kl_wait(core, kl_load(core, more, args[0] + 64, 10));
            data[0] = static_cast<unsigned char>(more[0] + 1);
            kl_charge(core, KL_UNIT_VECTOR, KL_DTYPE_FLOAT32, 9);
            kl_charge_cycles(core, KL_UNIT_VECTOR, 3);
            kl_store_rows(core, args[0], data, {2, 1, 16, 50});
        },
        base);
    EXPECT_TRUE(recorder.outcome().ok());
    EXPECT_EQ(memory[0], 8);
    const auto &actions = recorder.actions();
    ASSERT_EQ(actions.size(), 4u);
    EXPECT_EQ(actions[0].kind, std::uint32_t{KL_ACTION_LOAD});
    EXPECT_EQ(actions[0].sram, 128u);
    EXPECT_EQ(actions[0].address, KL_VIRTUAL_BASE + 64);
    EXPECT_EQ(actions[1].kind, std::uint32_t{KL_ACTION_WAIT});
    EXPECT_EQ(actions[1].tag, actions[0].tag);
    EXPECT_EQ(actions[2].cycles, 5u + 2u + 3u);
    EXPECT_EQ(actions[3].rows.rows, 2u);
}

TEST_F(RecorderTest, AfterAFailureEveryFunctionReturnsSomethingUsable) {
    recorder.run(
        [](kl_core *core, const std::uint64_t *args) {
            for (const std::uint64_t bytes : {2000ull, 1ull << 30, 10ull}) {
                auto *data = static_cast<unsigned char *>(kl_allocate(core, bytes));
                data[0] = data[bytes - 1] = 1;
                kl_wait(core, kl_load(core, data, args[0], bytes));
                kl_wait(core, kl_store(core, args[0], data, bytes));
                kl_charge(core, 99, 99, 1);
                kl_wait(core, 1000);
            }
            core->functions->fail(core, "later");
        },
        base);
    EXPECT_EQ(recorder.outcome().status, std::uint32_t{KL_STATUS_OUT_OF_MEMORY});
    EXPECT_NE(recorder.outcome().detail.find("PE 0.0.0: task 1 'x' needs 2000 bytes of SRAM on "
                                             "top of 0, and a PE has 1024 (arch.sram.bytes)"),
              std::string::npos);
    EXPECT_TRUE(recorder.actions().empty());
    EXPECT_EQ(memory[0], 0);
}

TEST_F(RecorderTest, RectanglesThatNoMemoryHasAreRefused) {
    const kl_rows wrong[] = {{~0ull, 8, ~0ull, 8},
                             {2, 8, ~0ull, 8},
                             {2, 8, 8, ~0ull},
                             {1, ~0ull, 0, 0},
                             {1ull << 33, 8, 1ull << 33, 0}};
    for (const kl_rows &rows : wrong) {
        const std::uint64_t place = reinterpret_cast<std::uintptr_t>(&rows);
        Recorder one(platform, {KL_NODE_PE, 0, 0, 0}, sram, "it");
        one.run(
            [](kl_core *core, const std::uint64_t *args) {
                kl_rows rows;
                std::memcpy(&rows, reinterpret_cast<const void *>(args[0]), sizeof rows);
                kl_load_rows(core, kl_allocate(core, 100), KL_VIRTUAL_BASE, rows);
            },
            &place);
        EXPECT_EQ(one.outcome().status, std::uint32_t{KL_STATUS_OUT_OF_BOUNDS});
    }
}

TEST_F(RecorderTest, RowsBetweenTheSamePlacesAreRefusedAtOnce) {
    recorder.run(
        [](kl_core *core, const std::uint64_t *args) {
            kl_load_rows(core, kl_allocate(core, 100), args[0], {1ull << 60, 8, 0, 0});
        },
        base);
    EXPECT_EQ(recorder.outcome().status, std::uint32_t{KL_STATUS_INVALID});
    EXPECT_NE(recorder.outcome().detail.find("both strides are 0"), std::string::npos);
    EXPECT_TRUE(recorder.actions().empty());
}

TEST_F(RecorderTest, FaultsNameTheFirstByteThatCannotBeAccessed) {
    recorder.run(
        [](kl_core *core, const std::uint64_t *args) {
            kl_load(core, kl_allocate(core, 100), args[0] + 4090, 10);
        },
        base);
    EXPECT_EQ(recorder.outcome().status, std::uint32_t{KL_STATUS_OUT_OF_BOUNDS});
    EXPECT_EQ(recorder.outcome().value, KL_VIRTUAL_BASE + 4096);
}

} // namespace

} // namespace kernloom::core
