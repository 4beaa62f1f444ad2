// Threads that run the work of PEs beside the simulation. They are started when there is work for
// them, and live as long as the device.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace kernloom {

class WorkPool {
  public:
    using Work = void (*)(void *context);

    // With at most one thread, all work is done by the caller.
    WorkPool(uint32_t threads, uint32_t pes);
    ~WorkPool();
    WorkPool(const WorkPool &) = delete;
    WorkPool &operator=(const WorkPool &) = delete;

    // Only one piece of work of each PE may be unfinished.
    void start(uint32_t pe, Work work, void *context);
    void finish(uint32_t pe);

  private:
    struct Item {
        uint32_t pe;
        Work work;
        void *context;
    };

    bool add_thread();
    void serve();

    uint32_t most_;
    std::vector<std::thread> threads_;
    std::mutex mutex_; // of all below
    std::condition_variable added_;
    std::condition_variable ended_;
    std::deque<Item> waiting_;
    std::vector<uint8_t> unfinished_; // by PE
    uint32_t idle_ = 0;
    bool closing_ = false;
};

} // namespace kernloom
