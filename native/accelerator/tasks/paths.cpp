#include "paths.hpp"

#include <algorithm>

namespace kernloom::tasks {

namespace {

constexpr std::uint32_t OFTEN = 16;       // questions about an earlier task
constexpr std::size_t MOST_WAITING = 256; // earlier tasks that are kept

} // namespace

Paths::Paths(const Transcript &transcript, const Edges &edges)
    : edges_(edges), tasks_(static_cast<std::uint32_t>(transcript.tasks.size())) {
    barriers_.resize(tasks_);
    levels_.resize(tasks_);
    asked_.resize(tasks_);
    visited_.resize(tasks_);
    std::uint32_t barrier = 0;
    for (std::uint32_t task = 0; task < tasks_; task++) {
        if (transcript.tasks[task].flags & TASK_BARRIER)
            barrier = task + 1;
        barriers_[task] = barrier;
        for (std::uint32_t i = edges.first[task]; i < edges.first[task + 1]; i++) {
            std::uint32_t &level = levels_[edges.successors[i]];
            level = std::max(level, levels_[task] + 1);
        }
    }
}

bool Paths::has(std::uint32_t from, std::uint32_t to) {
    // All before a barrier ends before it, and all after it waits for it.
    if (barriers_[to] > from)
        return true;
    if (levels_[from] >= levels_[to])
        return false;
    // Successors are in order.
    const std::uint32_t *const successors = edges_.successors.data();
    if (std::binary_search(successors + edges_.first[from], successors + edges_.first[from + 1],
                           to))
        return true;
    return ++asked_[from] > OFTEN ? look_ahead(from, to) : look_back(from, to);
}

void Paths::find_predecessors() {
    first_predecessor_.resize(tasks_ + 1);
    for (std::uint32_t task = 0; task < tasks_; task++)
        first_predecessor_[task + 1] = first_predecessor_[task] + edges_.predecessors[task];
    predecessors_.resize(edges_.successors.size());
    Array<std::uint32_t> next = first_predecessor_;
    for (std::uint32_t task = 0; task < tasks_; task++)
        for (std::uint32_t i = edges_.first[task]; i < edges_.first[task + 1]; i++)
            predecessors_[next[edges_.successors[i]]++] = task;
}

void Paths::open_predecessors(std::uint32_t task) {
    for (std::uint32_t i = first_predecessor_[task]; i < first_predecessor_[task + 1]; i++) {
        const std::uint32_t before = predecessors_[i];
        if (visited_[before] == search_)
            continue;
        visited_[before] = search_;
        open_.push_back(before);
        std::push_heap(open_.begin(), open_.end());
    }
}

bool Paths::look_back(std::uint32_t from, std::uint32_t to) {
    if (first_predecessor_.empty())
        find_predecessors();
    if (later_ != to) {
        later_ = to;
        search_++;
        open_.clear();
        open_predecessors(to);
    }
    while (!open_.empty() && open_.front() > from) {
        const std::uint32_t task = open_.front();
        std::pop_heap(open_.begin(), open_.end());
        open_.pop_back();
        open_predecessors(task);
    }
    return visited_[from] == search_;
}

bool Paths::look_ahead(std::uint32_t from, std::uint32_t to) {
    if (waiting_.size() >= MOST_WAITING && !waiting_.contains(from))
        waiting_.clear();
    Waiting &waiting = waiting_[from];
    if (waiting.found.empty()) {
        waiting.end = from;
        waiting.found.resize((tasks_ - from) / 64 + 1);
        waiting.found[0] = 1;
    }
    const auto found = [&](std::uint32_t task) {
        return waiting.found[(task - from) / 64] >> (task - from) % 64 & 1;
    };
    for (; waiting.end < to; waiting.end++) {
        if (!found(waiting.end))
            continue;
        for (std::uint32_t i = edges_.first[waiting.end]; i < edges_.first[waiting.end + 1]; i++) {
            const std::uint32_t bit = edges_.successors[i] - from;
            waiting.found[bit / 64] |= std::uint64_t{1} << bit % 64;
        }
    }
    return found(to);
}

} // namespace kernloom::tasks
