// Events come by time and then by the order in which they were added, whatever lane they are in.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

#include "event_queue.hpp"

namespace kernloom::testing {

TEST(EventQueue, order_does_not_depend_on_lanes) {
    std::mt19937 dice(7);
    EventQueue queue;
    std::map<std::pair<uint64_t, uint32_t>, uint32_t> expected; // time, number -> kind
    uint64_t now = 0;
    uint32_t number = 0;
    for (uint32_t step = 0; step < 20000; step++) {
        ASSERT_EQ(queue.empty(), expected.empty());
        // Phases of growth and of decline; every lane also gets events that are out of order.
        const bool grow = dice() % 8 < (step / 1000 % 2 == 0 ? 5 : 3);
        if (grow || expected.empty()) {
            const uint32_t lane = static_cast<uint32_t>(dice() % (EventQueue::LANES + 1));
            const uint64_t delay = dice() % 8 == 0 ? dice() % 50 : lane * 7;
            const uint32_t kind = static_cast<uint32_t>(dice() % (1u << Event::KIND_BITS));
            expected[{now + delay, number}] = kind;
            queue.push(now + delay, kind, number++, lane);
            continue;
        }
        const auto first = expected.begin();
        ASSERT_EQ(queue.top().time, first->first.first);
        const Event event = queue.pop();
        ASSERT_EQ(event.time, first->first.first);
        ASSERT_EQ(event.argument(), first->first.second);
        ASSERT_EQ(event.kind(), first->second);
        now = event.time;
        expected.erase(first);
    }
}

} // namespace kernloom::testing
