// The critical path of what a report is about: stretches that follow each other from its begin to
// its end. Programs say which tasks and what scheduling the end waited for; the platform adds the
// way of the host's messages, and what each task spent its time on.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cause.hpp"

#include "kernloom/platform.h"

namespace kernloom {

using Spent = std::array<uint64_t, CAUSES>;

// What every task spent its time on. Most tasks have few causes: a mask of them and their times as
// numbers of variable length take about 25 bytes.
class TaskLog {
  public:
    void clear() {
        bytes_.clear();
        tasks_.clear();
    }
    void add(uint64_t end_ps, const Spent &spent);
    // Adds what the task that has ended at this instant spent; false if there is none. Tasks end
    // in order of time.
    bool find(uint64_t end_ps, Spent &sum) const;

  private:
    struct Task {
        uint64_t end_ps;
        uint64_t at; // in `bytes_`
    };
    std::vector<Task> tasks_;
    std::vector<uint8_t> bytes_;
};

class CriticalPath {
  public:
    // Stretches of the same kind and name, merged.
    struct Group {
        const char *kind;
        std::string name;
        uint64_t count = 0;
        uint64_t ps = 0;
        Spent spent = {};
    };

    void begin(uint64_t now);
    // All that a program says must be later than what was said before; what is not is left out.
    void add(const kl_stretch &stretch, const TaskLog *log);
    // A message between host and control program on a link.
    void add_hop(uint64_t begin_ps, uint64_t end_ps, Cause cause, const char *link);
    // Groups in order of time, which tile the time from the begin until now exactly.
    std::vector<Group> groups(uint64_t now) const;

  private:
    Group &group(const char *kind, const char *name);
    bool reaches(uint64_t begin_ps, uint64_t end_ps);

    uint64_t end_ = 0;
    std::vector<Group> groups_; // in order of their first stretch
    std::map<std::string, size_t> places_;
};

} // namespace kernloom
