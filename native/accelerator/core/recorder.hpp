// A task while its kernel runs: what the kernel asks for is recorded, and done as late as a device
// may: a copy when it is waited for. A kernel that does not wait gets a wrong result here, too.
#pragma once

#include <string>
#include <vector>

#include "kernloom/fabric.hpp"
#include "sram.hpp"

namespace kernloom::core {

class Recorder : public kl_core {
  public:
    // `title` names the task in messages.
    Recorder(const kl_platform &platform, kl_node node, Sram &sram, std::string title);

    // Runs a kernel to its end.
    void run(kl_core_entry_function entry, const std::uint64_t *arguments);

    // Ends the task with its first failure.
    void fail_with(std::uint32_t status, const std::string &reason, std::uint64_t address = 0);

    const std::vector<kl_action> &actions() const {
        return actions_;
    }
    std::vector<kl_action> take_actions() {
        return std::move(actions_);
    }
    const Outcome &outcome() const {
        return outcome_;
    }

  private:
    static const kl_core_functions *table();
    static Recorder &self(kl_core *core) {
        return *static_cast<Recorder *>(core);
    }

    // A copy that is not waited for yet.
    struct Pending {
        kl_tag tag;
        std::uint32_t kind;
        unsigned char *sram;
        std::uint64_t address;
        kl_rows rows;
    };

    void *allocate(std::uint64_t bytes);
    kl_tag copy(std::uint32_t kind, void *sram, std::uint64_t address, const kl_rows &rows);
    void move(const Pending &copy);
    void wait(kl_tag tag);
    void charge(std::uint32_t unit, std::uint32_t dtype, std::uint64_t operations);
    void charge_cycles(std::uint32_t unit, std::uint64_t cycles);
    void compute(std::uint32_t unit, std::uint64_t cycles);
    std::uint32_t core_type() const;

    const kl_platform &platform_;
    kl_node node_;
    Sram &sram_;
    std::string title_;
    std::vector<kl_action> actions_;
    std::vector<Pending> pending_; // by tag
    kl_tag last_tag_ = 0;
    Outcome outcome_;
};

} // namespace kernloom::core
