// Races among transfers, without a device.
#include <gtest/gtest.h>

#include "orchestrations.hpp"
#include "races.hpp"

namespace kernloom::testing {
namespace {

using namespace tasks;

// Each task writes the first bytes of a tensor.
Outcome races_of(const Launch &launch, const std::vector<TensorRecord> &tensors,
                 const std::vector<std::uint32_t> &written) {
    const HazardNames names = {[](TaskPlace place) { return text_of("task %u", place.task); },
                               [&](std::uint32_t tensor) { return tensors[tensor].address; }};
    Races races;
    races.begin(launch.transcript, tensors, names);
    for (std::uint32_t task = 0; task < written.size(); task++) {
        races.begin_task({task, NONE});
        races.touch(written[task], {tensors[written[task]].address, 16, 16, 0, nullptr}, true);
        races.keep({task, NONE});
    }
    return races.find();
}

// A tensor without bytes amid tensors that share memory.
TEST(Races, between_tensors_around_an_empty_one) {
    Launch launch;
    launch.tensor_bytes = {256, 0, 64};
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        for (const std::uint32_t tensor : {0u, 2u})
                            tasks.dummy().out(tasks.tensor<float>(tensor, {16}).all());
                    })
                    .ok());
    const auto detail = [&](std::uint64_t empty, std::uint64_t last) {
        return races_of(launch, {{4096, 256}, {empty, 0}, {last, 64}}, {0, 2}).detail;
    };
    EXPECT_NE(detail(4100, 4104).find("bytes 8 to 15 of tensor 0"), std::string::npos)
        << detail(4100, 4104);
    EXPECT_NE(detail(4096, 4096).find("bytes 0 to 15 of tensor 0"), std::string::npos);
    EXPECT_EQ(detail(4100, 4096 + 256), "");
    EXPECT_EQ(detail(4100, 4112), "");
}

// Bytes that each block writes, and one that all of them read.
TEST(Races, among_blocks_of_one_task) {
    Launch launch;
    launch.tensor_bytes = {256, 64};
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        for (int i = 0; i < 2; i++)
                            tasks.dummy()
                                .in(tasks.tensor<float>(1, {16}).all())
                                .inout(tasks.tensor<float>(0, {64}).all())
                                .blocks(4);
                    })
                    .ok());
    const std::vector<TensorRecord> tensors = {{4096, 256}, {8192, 64}};
    const HazardNames names = {[](TaskPlace place) { return text_of("task %u", place.task); },
                               [&](std::uint32_t tensor) { return tensors[tensor].address; }};
    const auto detail = [&](std::uint64_t distance, bool store) {
        Races races;
        races.begin(launch.transcript, tensors, names);
        for (std::uint32_t task = 0; task < 2; task++)
            for (const std::uint32_t block : {2u, 0u, 3u, 1u}) {
                const TaskPlace place{task, NONE, block};
                races.begin_task(place);
                races.touch(1, {8192, 64, 64, 0, nullptr}, false);
                races.touch(0, {4096 + distance * block, 16, 16, 0, nullptr}, store);
                races.keep(place);
                // The vector PE of a mixed block.
                races.begin_task(place);
                races.touch(0, {4096 + distance * block, 16, 16, 0, nullptr}, store);
                races.keep(place);
            }
        return races.find().detail;
    };
    EXPECT_EQ(detail(16, true), "");
    EXPECT_EQ(detail(8, false), "");
    EXPECT_EQ(detail(12, true),
              "hazard: block 0 of task 0 writes and block 1 writes bytes 12 to 15 of tensor 0, and "
              "neither waits for the other");
}

} // namespace
} // namespace kernloom::testing
