// Races: conflicting transfers that nothing orders. Derived dependencies order all that tasks
// declare, so that only some tensors can have any: those that tasks of manual scopes or arguments
// without dependencies use, those that share memory, and those that the blocks of a task write,
// which nothing orders. Transfers to them are kept until all tasks have ended, and compared.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "hazard_names.hpp"
#include "layouts.hpp"
#include "paths.hpp"

namespace kernloom::tasks {

class Races {
  public:
    Races();
    ~Races();
    Races(const Races &) = delete;
    Races &operator=(const Races &) = delete;

    // Forgets everything before. All must outlive this.
    void begin(const Transcript &transcript, std::span<const TensorRecord> tensors,
               const HazardNames &names);
    // The transfers of a task follow, or of a block of it.
    void begin_task(TaskPlace place);
    // A transfer of it to a tensor of the transcript, in the device's addresses.
    void touch(std::uint32_t tensor, const RegionView &view, bool store) {
        if (any_loose_ || in_blocks_)
            touch_watched(tensor, view, store);
    }
    // These were all transfers of the task.
    void keep(TaskPlace place);
    // Compares what tasks have done, when all have ended.
    Outcome find();

  private:
    struct Touched;
    struct Body;

    void find_watched(std::span<const TensorRecord> tensors);
    void find_written_by_blocks();
    void touch_watched(std::uint32_t tensor, const RegionView &view, bool store);
    bool ordered(TaskPlace from, TaskPlace to);
    // Null if there is no memory for its edges: `problem_`.
    Paths *paths_of(std::uint32_t body);
    Outcome race(const Region &first, const Region &second, bool write) const;

    const Transcript *transcript_ = nullptr;
    const HazardNames *names_ = nullptr;

    // Tensors that share memory have one place in common: that of the first.
    std::vector<std::uint32_t> shared_with_;
    std::vector<std::uint64_t> shift_;
    std::vector<bool> loose_; // by tensor: used without derived dependencies
    bool any_loose_ = false;
    std::vector<bool> by_blocks_; // by tensor: written by blocks of one task
    bool any_by_blocks_ = false;
    bool in_blocks_ = false;           // whether the task that is being looked at has several
    std::vector<Touched> touched_;     // by the task that is being looked at
    std::unique_ptr<Transcript> kept_; // regions are transfers; their tasks are places in places_
    std::unique_ptr<Layouts> layouts_;
    std::vector<TaskPlace> places_;
    std::vector<std::uint32_t> first_region_;   // in kept_, of each of places_
    std::vector<std::unique_ptr<Body>> bodies_; // 0: the transcript; then its graphs
    Outcome problem_;
};

} // namespace kernloom::tasks
