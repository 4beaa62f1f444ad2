// Work of PEs on threads of the device: as many as it has, however much work there is.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "device.hpp"

namespace kernloom::testing {

namespace {

struct Done {
    std::thread::id thread;
    uint64_t number = 0;
};

void note_thread(void *context) {
    auto &done = *static_cast<Done *>(context);
    done.thread = std::this_thread::get_id();
    done.number++;
}

// The threads that did 3,000 pieces of work, six PEs at a time.
std::set<std::thread::id> threads_of_work(const std::string &settings) {
    Device device(settings);
    void *self = device.platform->self;
    std::set<std::thread::id> threads;
    Done done[6];
    for (int round = 0; round < 500; round++) {
        for (uint16_t i = 0; i < 6; i++) {
            device.platform->start_work(self, pe(0, i / 3, i % 3), note_thread, &done[i]);
        }
        for (uint16_t i = 0; i < 6; i++) {
            device.platform->finish_work(self, pe(0, i / 3, i % 3));
            threads.insert(done[i].thread);
        }
    }
    for (const Done &one : done) {
        EXPECT_EQ(one.number, 500u);
    }
    return threads;
}

} // namespace

TEST(WorkPool, thousands_of_works_share_the_threads_of_the_device) {
    for (const unsigned most : {2u, 4u}) {
        const auto threads = threads_of_work("threads=" + std::to_string(most) + "\n");
        EXPECT_LE(threads.size(), most);
        EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
    }
}

TEST(WorkPool, without_threads_the_caller_works) {
    EXPECT_EQ(threads_of_work("threads=1\n"), std::set{std::this_thread::get_id()});
    EXPECT_EQ(threads_of_work(""), std::set{std::this_thread::get_id()});
}

TEST(WorkPool, a_device_ends_after_its_work) {
    Done done;
    {
        Device device("threads=2\n");
        device.platform->start_work(device.platform->self, pe(0, 0, 0), note_thread, &done);
    }
    EXPECT_EQ(done.number, 1u);
}

TEST(WorkPool, finishing_without_work_returns) {
    Device device("threads=2\n");
    device.platform->finish_work(device.platform->self, pe(0, 0, 0));
    device.platform->finish_work(device.platform->self, pe(9, 9, 9));
}

} // namespace kernloom::testing
