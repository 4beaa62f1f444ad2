// Runs a task of the last launch again, alone, from a dump of its arguments, and compares what it
// leaves behind with what it left in the launch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernloom/fabric.hpp"
#include "region.hpp"

namespace kernloom::control {

class Replay {
  public:
    // A region of the task, in the device's addresses.
    struct Range {
        tasks::RegionView view;
        std::uint32_t tensor;
        std::uint64_t address; // of the tensor
    };

    struct Result {
        Outcome outcome;
        std::uint64_t bytes = 0; // compared
        std::uint64_t regions = 0;
        std::uint64_t jobs = 0;
        bool equal = false;
        // The first difference:
        std::uint32_t tensor = 0;
        std::uint64_t byte = 0;
        unsigned before = 0, after = 0;
    };
    using End = std::function<void(const Result &)>;

    // `wanted`: name or number of a task; empty: none.
    Replay(const kl_platform &platform, kl_node node, std::string wanted)
        : platform_(platform), node_(node), wanted_(std::move(wanted)) {
    }

    const std::string &wanted() const {
        return wanted_;
    }
    // A launch begins: the unit in it that is wanted, or NONE, and how many jobs it has.
    void begin(std::uint32_t unit, std::uint64_t jobs);
    std::uint32_t unit() const {
        return unit_;
    }
    // A job of the unit goes to a PE. Before the first, its regions are dumped.
    void dispatched(kl_node pe, const std::vector<unsigned char> &message,
                    const std::function<std::vector<Range>()> &ranges);
    // A job of the unit has ended. After the last, its regions are dumped again.
    void completed();
    // Whether the unit has been executed.
    bool recorded() const {
        return unit_ != tasks::NONE && completed_ == jobs_;
    }

    // Runs the unit again; `end` is called then. What it writes is undone.
    void run(End end);
    bool running() const {
        return left_ != 0;
    }
    void answered(const kl_delivery &delivery);
    // The host has given up.
    void forget() {
        left_ = 0;
    }

  private:
    struct Sent {
        kl_node pe;
        std::vector<unsigned char> message;
    };
    using Content = std::vector<std::vector<unsigned char>>; // by range

    Content read() const;
    void write(const Content &content) const;
    void finish();
    void compare(const Content &found);

    const kl_platform &platform_;
    kl_node node_;
    std::string wanted_;
    std::uint32_t unit_ = tasks::NONE;
    std::uint64_t jobs_ = 0;
    std::uint64_t completed_ = 0;
    std::vector<Sent> sent_;
    std::vector<Range> ranges_;
    Content before_, after_;

    Content saved_; // what the replay overwrites
    std::uint64_t requests_ = 1ull << 62;
    std::size_t left_ = 0; // jobs to be answered
    Result result_;
    End end_;
};

} // namespace kernloom::control
