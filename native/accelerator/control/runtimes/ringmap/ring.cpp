#include "ring.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace kernloom::control {

namespace {

// Steps after which the search for the least heap is content with one that surely works.
constexpr std::uint64_t MOST_STEPS = 200'000'000;
// What a new ring takes.
constexpr std::uint64_t STEPS_OF_A_RING = 64;

struct Step {
    RingNeed need;
    std::uint32_t ring;
    std::uint32_t until; // tasks submitted when its scope ends; 0: it holds nothing beyond its end
};

// The largest use of each resource of any ring, with heaps of this size; if `stop`, it is enough to
// know that the heap's is too small.
RingNeed peaks(const std::vector<Step> &steps, std::uint32_t depths, std::uint64_t heap,
               bool stop) {
    RingNeed found{};
    std::vector<Ring> rings(depths);
    for (Ring &ring : rings)
        ring.reset({{~0ull, heap, ~0ull}, depths});
    for (std::uint32_t task = 0; task < steps.size(); task++) {
        const Step &step = steps[task];
        Ring &ring = rings[step.ring];
        while (!ring.empty() && steps[ring.oldest()].until <= task)
            ring.give_back();
        ring.take(task, step.need);
        for (std::uint32_t i = 0; i < RESOURCES; i++)
            found.size[i] = std::max(found.size[i], ring.used(i));
        if (stop && found.size[HEAP] > heap)
            return found;
    }
    return found;
}

} // namespace

LeastSizes least_sizes(const tasks::Transcript &transcript, const RingSizes &sizes,
                       Resource lacking) {
    const std::uint32_t depths = sizes.depths;
    std::vector<Step> steps;
    std::uint32_t output = transcript.launch_tensors;
    std::uint64_t largest = 0, unit = 0;
    for (std::uint32_t task = 0; task < transcript.tasks.size(); task++) {
        const RingNeed need = need_of(transcript, task, output);
        const tasks::Task &one = transcript.tasks[task];
        const bool graph = one.flags & tasks::TASK_GRAPH;
        steps.push_back({need, ring_of(transcript, one, depths),
                         need.size[HEAP] && !graph ? transcript.scopes[one.scope].end : 0});
        largest = std::max(largest, need.size[HEAP]);
        unit = std::gcd(unit, need.size[HEAP]);
    }
    constexpr std::uint64_t endless = 1ull << 62;
    LeastSizes least = {peaks(steps, depths, endless, false), true};
    std::uint64_t &heap = least.need.size[HEAP];
    const std::uint64_t enough = heap + largest;
    const auto works = [&](std::uint64_t size) {
        return peaks(steps, depths, size, true).size[HEAP] <= size;
    };
    if (lacking != HEAP && works(sizes.size[HEAP])) {
        heap = sizes.size[HEAP];
        return least;
    }
    const std::uint64_t most = MOST_STEPS / (steps.size() + STEPS_OF_A_RING * depths);
    // All places are multiples of `unit`: what a heap has beyond one is of no use.
    for (std::uint64_t tries = 0; largest; tries++, heap += unit) {
        if (works(heap))
            break;
        if (tries > most) {
            heap = enough;
            least.exact = false;
            break;
        }
    }
    return least;
}

} // namespace kernloom::control
