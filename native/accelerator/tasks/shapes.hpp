// Shapes of regions as orchestrations give them, and the layouts that they become.
#pragma once

#include "layouts.hpp"
#include "orchestrator.hpp"

namespace kernloom::tasks {

class Shapes {
  public:
    // A place after those of a task's arguments.
    static constexpr std::uint32_t PREDICATE = KL_MAX_TASK_ARGUMENTS;

    struct Known {
        std::uint32_t dtype = 0;
        std::uint32_t dimensions = 0;
        std::uint32_t is_new = 0;
        std::uint32_t layout = 0;
        std::uint64_t item = 0; // bytes of an element; 0: nothing is known
        std::uint64_t span = 0;
        std::uint64_t shape[KL_MAX_DIMENSIONS] = {};
        std::uint64_t strides[KL_MAX_DIMENSIONS] = {};
    };

    explicit Shapes(Layouts &layouts) : layouts_(layouts) {
    }

    // The shape of the argument at a place, or of the predicate. `is_new`: of an output, which is
    // dense. If it returns null, `problem` says why.
    const Known *find(const kl_region &region, bool is_new, std::uint32_t place, Outcome &problem) {
        const Known &known = known_[place];
        bool same = known.dtype == region.dtype && known.dimensions == region.dimensions &&
                    known.is_new == is_new && known.item != 0;
        if (!same) [[unlikely]]
            return learn(region, is_new, place, problem);
        for (std::uint32_t i = 0; i < known.dimensions; i++)
            same &= known.shape[i] == region.shape[i] && known.strides[i] == region.strides[i];
        return same ? &known : learn(region, is_new, place, problem);
    }

  private:
    const Known *learn(const kl_region &region, bool is_new, std::uint32_t place, Outcome &problem);

    Layouts &layouts_;
    Known known_[PREDICATE + 1]; // what each was last: tasks mostly repeat it
};

} // namespace kernloom::tasks
