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
        races.begin_task();
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

} // namespace
} // namespace kernloom::testing
