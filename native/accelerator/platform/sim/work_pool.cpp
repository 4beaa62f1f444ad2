#include "work_pool.hpp"

#include <system_error>

namespace kernloom {

WorkPool::WorkPool(uint32_t threads, uint32_t pes)
    : most_(threads > 1 ? threads : 0), unfinished_(pes, 0) {
}

WorkPool::~WorkPool() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    added_.notify_all();
    for (std::thread &thread : threads_) {
        thread.join();
    }
}

// False if the system has no more threads.
bool WorkPool::add_thread() {
    try {
        threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error &) {
        return false;
    }
    return true;
}

void WorkPool::start(uint32_t pe, Work work, void *context) {
    bool enough;
    {
        const std::lock_guard lock(mutex_);
        enough = idle_ > waiting_.size() || threads_.size() == most_;
    }
    const bool added = !enough && add_thread();
    if (!added && threads_.empty()) {
        work(context);
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        unfinished_[pe] = 1;
        waiting_.push_back({pe, work, context});
    }
    added_.notify_one();
}

void WorkPool::finish(uint32_t pe) {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return unfinished_[pe] == 0; });
}

void WorkPool::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        idle_++;
        added_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
        idle_--;
        if (waiting_.empty()) {
            return;
        }
        const Item item = waiting_.front();
        waiting_.pop_front();
        lock.unlock();
        item.work(item.context);
        lock.lock();
        unfinished_[item.pe] = 0;
        ended_.notify_all();
    }
}

} // namespace kernloom
