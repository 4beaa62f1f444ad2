// Hazards: transfers of tasks that their declarations do not allow for.
//
// A task that transfers bytes that no region of its own covers, or writes what it declares as input
// only, is found at once. Where all transfers are declared, derived dependencies order all that
// conflict, but for races.
#pragma once

#include <span>
#include <vector>

#include "races.hpp"

namespace kernloom::tasks {

class Hazards {
  public:
    Hazards();
    ~Hazards();
    Hazards(const Hazards &) = delete;
    Hazards &operator=(const Hazards &) = delete;

    // Forgets everything before. The transcript must outlive this.
    void begin(const Transcript &transcript, std::span<const TensorRecord> tensors,
               HazardNames names);
    // What a task has done, or a block of it. Fails if it may not.
    Outcome add(TaskPlace place, std::span<const kl_action> actions);
    // Compares what different tasks have done, when all have ended.
    Outcome races() {
        return races_.find();
    }

  private:
    struct Declared;

    void declare(TaskPlace place);
    const Declared *find(const RegionView &view, bool store) const;
    const Declared *find_parts(const RegionView &view, bool store, std::uint64_t &first) const;
    Outcome undeclared(TaskPlace place, const RegionView &view, bool store,
                       std::uint64_t first) const;
    std::string other_user(TaskPlace place, std::uint32_t tensor, std::uint64_t begin,
                           std::uint64_t end, bool store) const;

    const Transcript *transcript_ = nullptr;
    HazardNames names_;
    std::vector<Declared> declared_; // of the task that is being looked at
    Races races_;
};

} // namespace kernloom::tasks
