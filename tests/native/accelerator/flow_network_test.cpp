// Rates are max-min fair after every change, whatever part of the network is computed anew.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "flow_network.hpp"
#include "progressive_filling.hpp"

namespace kernloom::testing {

namespace {

// Numbers that are the same with every standard library.
class Dice {
  public:
    explicit Dice(uint32_t seed) : engine_(seed) {
    }

    uint32_t below(uint32_t bound) {
        return static_cast<uint32_t>(engine_() % bound);
    }

  private:
    std::mt19937 engine_;
};

constexpr uint32_t LINKS = 12;
constexpr uint32_t GROUPS = 3;
constexpr uint32_t UNITS = 4;

// Compares all rates with those of the textbook.
void expect_fair(FlowNetwork &network, const std::vector<double> &capacities,
                 std::map<uint32_t, FilledFlow> &active, uint64_t now) {
    network.settle(now);
    std::vector<FilledFlow *> flows;
    for (auto &[number, flow] : active) {
        flows.push_back(&flow);
    }
    fill_progressively(capacities, flows);
    for (const auto &[number, flow] : active) {
        ASSERT_NEAR(network.rate_of(number), flow.rate, flow.rate * 1e-7) << "flow " << number;
    }
}

// Now and then time goes on to the next end, and what ends then is gone.
void let_end(FlowNetwork &network, std::map<uint32_t, FilledFlow> &active, Dice &dice,
             uint64_t &now) {
    if (active.empty() || dice.below(3) == 0) {
        return;
    }
    now = network.next();
    while (network.next() == now) {
        active.erase(network.take_ended());
    }
}

} // namespace

TEST(FlowNetwork, rates_are_max_min_fair_after_every_change) {
    for (uint32_t seed = 0; seed < 20; seed++) {
        Dice dice(seed);
        FlowNetwork network;
        std::vector<double> capacities;
        std::vector<uint32_t> links;
        std::vector<uint32_t> groups;
        for (uint32_t i = 0; i < LINKS; i++) {
            capacities.push_back(10 + dice.below(50));
            links.push_back(network.add_resource(capacities.back(), Cause::NOC));
        }
        for (uint32_t i = 0; i < GROUPS; i++) {
            const double unit = 5 + dice.below(20);
            capacities.insert(capacities.end(), UNITS, unit);
            groups.push_back(network.add_group(UNITS, unit, unit * UNITS, Cause::HBM));
        }
        std::map<uint32_t, FilledFlow> active;
        uint64_t now = 0;
        uint32_t client = 0;
        for (uint32_t step = 0; step < 400; step++) {
            const uint32_t starts = dice.below(3);
            for (uint32_t i = 0; i < starts && active.size() < 40; i++) {
                FilledFlow flow = {5.0 + dice.below(30), {}};
                flow.coefficients.assign(capacities.size(), 0);
                std::vector<FlowNetwork::Share> shares;
                const uint32_t from = dice.below(LINKS);
                const uint32_t to = (from + 1 + dice.below(LINKS - 1)) % LINKS;
                for (const uint32_t link : {from, to}) {
                    shares.push_back({links[link], 1});
                    flow.coefficients[link] = 1;
                }
                const uint32_t group = dice.below(GROUPS);
                const uint32_t mask = dice.below(4) == 0 ? 1 + dice.below(14) : 15;
                const double share = 1.0 / __builtin_popcount(mask);
                if (mask == 15) {
                    shares.push_back({groups[group], 1});
                }
                for (uint32_t unit = 0; unit < UNITS; unit++) {
                    if ((mask >> unit & 1) != 0) {
                        flow.coefficients[LINKS + group * UNITS + unit] = share;
                        if (mask != 15) {
                            shares.push_back({groups[group] + 1 + unit, share});
                        }
                    }
                }
                network.start(now, 1000 + dice.below(100000), flow.cap, Cause::DMA, shares.data(),
                              static_cast<uint32_t>(shares.size()), client);
                active[client++] = flow;
            }
            SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
            ASSERT_NO_FATAL_FAILURE(expect_fair(network, capacities, active, now));
            let_end(network, active, dice, now);
        }
    }
}

// A copy inside an SRAM reads and writes it: the flow has two shares of one resource.
TEST(FlowNetwork, rates_are_max_min_fair_with_two_shares_of_one_resource) {
    constexpr uint32_t HBMS = 3;
    constexpr uint32_t SRAMS = 9;
    for (uint32_t seed = 0; seed < 40; seed++) {
        Dice dice(seed);
        FlowNetwork network;
        std::vector<double> capacities;
        for (uint32_t i = 0; i < HBMS + SRAMS; i++) {
            capacities.push_back(i < HBMS ? 30 + dice.below(100) : 40 + dice.below(100));
            network.add_resource(capacities.back(), i < HBMS ? Cause::HBM : Cause::SRAM);
        }
        std::map<uint32_t, FilledFlow> active;
        uint64_t now = 0;
        uint32_t client = 0;
        for (uint32_t step = 0; step < 400; step++) {
            const uint32_t starts = dice.below(3);
            for (uint32_t i = 0; i < starts && active.size() < 2 * SRAMS; i++) {
                const uint32_t sram = HBMS + dice.below(SRAMS);
                const uint32_t other = dice.below(4) == 0 ? sram : sram % HBMS;
                FilledFlow flow = {96, {}};
                flow.coefficients.assign(capacities.size(), 0);
                flow.coefficients[other] += 1;
                flow.coefficients[sram] += 1;
                const FlowNetwork::Share shares[] = {{other, 1}, {sram, 1}};
                network.start(now, 1000 + dice.below(100000), flow.cap, Cause::DMA, shares, 2,
                              client);
                active[client++] = flow;
            }
            SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
            ASSERT_NO_FATAL_FAILURE(expect_fair(network, capacities, active, now));
            let_end(network, active, dice, now);
        }
    }
}

} // namespace kernloom::testing
