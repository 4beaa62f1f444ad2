// Random traffic takes as long as in a model that computes every cycle.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <thread>

#include "cycle_model.hpp"
#include "device.hpp"

namespace kernloom::testing {

namespace {

constexpr uint64_t REGION = 1 << 24;

kl_node node_of(uint32_t pe_number) {
    const uint32_t cube = pe_number / CycleModel::PES;
    return pe(static_cast<uint16_t>(cube / 2), static_cast<uint16_t>(cube % 2),
              static_cast<uint16_t>(pe_number % CycleModel::PES));
}

// The same random tasks for the device and the model.
void random_tasks(uint32_t seed, Device &device, CycleModel &model) {
    std::mt19937 engine(seed);
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(engine() % bound); };
    const uint32_t pes = CycleModel::CUBES * CycleModel::PES;
    for (uint32_t i = 0; i < pes; i++) {
        for (uint32_t owner = 0; owner < pes; owner++) {
            device.map(node_of(i), {entry(VIRTUAL + owner * REGION, 0, REGION, node_of(owner))});
        }
        for (uint32_t t = 0; t < 3; t++) {
            CycleModel::Task task;
            std::vector<kl_action> actions;
            const uint32_t copies = 1 + below(4);
            for (uint32_t tag = 0; tag < copies; tag++) {
                const uint32_t owner = below(2) == 0 ? i : below(pes);
                const uint32_t kind = below(3) == 0 ? KL_ACTION_STORE : KL_ACTION_LOAD;
                const uint64_t bytes = 50000 + below(200000);
                kl_action action = copy(kind, tag, VIRTUAL + owner * REGION, bytes);
                uint32_t channels = 15;
                if (below(4) == 0) { // rows on two of the four channels
                    action.rows = {bytes / 2000, 2000, 16384, 2000};
                    action.address += 3000;
                    channels = 3;
                }
                const uint64_t moved = action.rows.rows * action.rows.bytes;
                actions.push_back(action);
                task.steps.push_back({kind, tag, 0, moved, owner, channels});
            }
            const uint64_t cycles = 2 * (100 + below(4000));
            for (uint32_t tag = 0; tag < copies; tag++) {
                if (below(2) == 0) {
                    actions.push_back(wait(tag));
                    task.steps.push_back({KL_ACTION_WAIT, tag, 0, 0, 0, 0});
                    actions.push_back(compute(cycles));
                    task.steps.push_back({KL_ACTION_COMPUTE, 0, cycles * 500, 0, 0, 0});
                }
            }
            device.replay(node_of(i), actions, t);
            model.pes[i].tasks.push_back(task);
        }
    }
}

const char *const TRAFFIC = "topology.sips=2\nmmu.hit_ns=0\nmmu.walk_ns=0\n";

} // namespace

TEST(RandomTraffic, agrees_with_a_model_of_every_cycle) {
    double sum = 0;
    double worst = 0;
    uint32_t count = 0;
    for (uint32_t seed = 0; seed < 4; seed++) {
        Device device(TRAFFIC);
        CycleModel model;
        random_tasks(seed, device, model);
        device.run();
        model.run();
        for (uint32_t i = 0; i < CycleModel::CUBES * CycleModel::PES; i++) {
            const auto &replayed = device.at(node_of(i)).replayed;
            ASSERT_EQ(replayed.size(), model.pes[i].tasks.size());
            for (size_t t = 0; t < replayed.size(); t++) {
                const auto expected = static_cast<double>(model.pes[i].tasks[t].ended);
                const double error =
                    std::fabs(static_cast<double>(replayed[t].second) - expected) / expected;
                sum += error;
                worst = error > worst ? error : worst;
                count++;
            }
        }
    }
    std::printf("mean error %.4f%%, worst %.4f%%, %u tasks\n", 100 * sum / count, 100 * worst,
                count);
    EXPECT_LE(sum / count, 0.0025);
    EXPECT_LE(worst, 0.01);
}

TEST(Parallel, thirty_two_simulations_at_once_do_not_disturb_each_other) {
    const auto simulate = [] {
        Device device(std::string(TRAFFIC) + "trace=1\n");
        CycleModel unused;
        random_tasks(7, device, unused);
        device.run();
        return device.trace() + device.report();
    };
    const std::string expected = simulate();
    std::vector<std::string> results(32);
    std::vector<std::thread> threads;
    for (std::string &result : results) {
        threads.emplace_back([&result, &simulate] { result = simulate(); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (const std::string &result : results) {
        EXPECT_TRUE(result == expected);
    }
}

} // namespace kernloom::testing
