#include "heap.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace kernloom::tasks {

namespace {

std::uint64_t aligned(std::uint64_t bytes) {
    return bytes > ~0ull - HEAP_ALIGNMENT ? bytes : (bytes + HEAP_ALIGNMENT - 1) & -HEAP_ALIGNMENT;
}

// Places one after the other; an output takes the lowest one that is free.
class FirstFit {
  public:
    FirstFit(const Transcript &transcript, Heap &heap, Array<Reuse> &reuses)
        : transcript_(transcript), heap_(heap), reuses_(reuses) {
    }

    void place_all() {
        find_users();
        find_deaths();
        std::size_t dead = 0;
        const std::uint32_t launch = transcript_.launch_tensors;
        for (std::uint32_t i = 0; i < heap_.offsets.size(); i++) {
            const TensorInfo &tensor = transcript_.tensors[launch + i];
            for (; dead < deaths_.size() && deaths_[dead].first <= tensor.producer; dead++)
                free(deaths_[dead].second);
            heap_.offsets[i] = take(aligned(tensor.bytes), tensor.producer);
        }
    }

  private:
    struct Free {
        std::uint64_t end;
        std::uint32_t output; // that was there
    };

    // The users of all outputs, output by output.
    void find_users() {
        const std::uint32_t launch = transcript_.launch_tensors;
        first_user_.resize(heap_.offsets.size() + 2);
        for (const Region &region : transcript_.regions)
            if (region.tensor >= launch)
                first_user_[region.tensor - launch + 2]++;
        for (std::size_t i = 1; i < first_user_.size(); i++)
            first_user_[i] += first_user_[i - 1];
        users_.resize(first_user_.back());
        for (const Region &region : transcript_.regions)
            if (region.tensor >= launch)
                users_[first_user_[region.tensor - launch + 1]++] = region.task;
    }

    // When outputs are no longer needed: how many tasks have been submitted, and which output. What
    // a recorded graph needs for itself is not needed by any other task.
    void find_deaths() {
        for (std::uint32_t i = 0; i < heap_.offsets.size(); i++) {
            const TensorInfo &tensor = transcript_.tensors[transcript_.launch_tensors + i];
            if (transcript_.tasks[tensor.producer].flags & TASK_GRAPH)
                deaths_.emplace_back(tensor.producer + 1, i);
            else if (tensor.scope)
                deaths_.emplace_back(transcript_.scopes[tensor.scope].end, i);
        }
        std::sort(deaths_.begin(), deaths_.end());
    }

    void free(std::uint32_t output) {
        const std::uint64_t begin = heap_.offsets[output];
        const std::uint64_t bytes =
            aligned(transcript_.tensors[transcript_.launch_tensors + output].bytes);
        if (bytes)
            free_[begin] = {begin + bytes, output};
    }

    std::uint64_t take(std::uint64_t bytes, std::uint32_t task) {
        if (!bytes)
            return 0;
        // Free ranges that touch count as one.
        std::uint64_t begin = heap_.bytes, end = begin;
        for (const auto &[from, range] : free_) {
            if (from != end)
                begin = from;
            end = range.end;
            if (end - begin >= bytes)
                break;
        }
        if (end - begin < bytes && end != heap_.bytes)
            begin = heap_.bytes;
        heap_.bytes = std::max(heap_.bytes, begin + bytes);
        use(begin, begin + bytes, task);
        return begin;
    }

    void use(std::uint64_t begin, std::uint64_t end, std::uint32_t task) {
        auto range = free_.lower_bound(begin);
        while (range != free_.end() && range->first < end) {
            const Free old = range->second;
            range = free_.erase(range);
            wait_for_users(old.output, task);
            if (old.end > end)
                free_[end] = old;
        }
    }

    void wait_for_users(std::uint32_t output, std::uint32_t task) {
        const std::uint32_t tensor = transcript_.launch_tensors + output;
        const std::uint32_t producer = transcript_.tensors[tensor].producer;
        // What a recorded graph needs for itself is in no region.
        if (transcript_.tasks[producer].flags & TASK_GRAPH)
            reuses_.push_back({producer, task, tensor});
        for (std::uint32_t i = first_user_[output]; i < first_user_[output + 1]; i++)
            reuses_.push_back({users_[i], task, tensor});
    }

    const Transcript &transcript_;
    Heap &heap_;
    Array<Reuse> &reuses_;
    std::map<std::uint64_t, Free> free_; // by its begin
    Array<std::uint32_t> first_user_;
    Array<std::uint32_t> users_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> deaths_;
};

} // namespace

void place_outputs(const Transcript &transcript, std::uint64_t room, Heap &heap,
                   Array<Reuse> &reuses) {
    const std::size_t outputs = transcript.tensors.size() - transcript.launch_tensors;
    heap.bytes = 0;
    heap.offsets.clear();
    std::uint64_t *const offsets = heap.offsets.add(outputs);
    for (std::size_t i = 0; i < outputs; i++) {
        const std::uint64_t bytes =
            aligned(transcript.tensors[transcript.launch_tensors + i].bytes);
        offsets[i] = heap.bytes;
        if (__builtin_add_overflow(heap.bytes, bytes, &heap.bytes)) {
            heap.bytes = ~0ull;
            return;
        }
    }
    if (heap.bytes <= room)
        return;
    heap.bytes = 0;
    FirstFit(transcript, heap, reuses).place_all();
}

} // namespace kernloom::tasks
