#include "critical_path.hpp"

#include <algorithm>

namespace kernloom {

void TaskLog::add(uint64_t end_ps, const Spent &spent) {
    static_assert(CAUSES <= 16);
    tasks_.push_back({end_ps, bytes_.size()});
    uint32_t mask = 0;
    for (uint32_t cause = 0; cause < CAUSES; cause++) {
        mask |= spent[cause] > 0 ? 1u << cause : 0;
    }
    bytes_.push_back(static_cast<uint8_t>(mask));
    bytes_.push_back(static_cast<uint8_t>(mask >> 8));
    for (uint64_t ps : spent) {
        if (ps == 0) {
            continue;
        }
        for (; ps >= 0x80; ps >>= 7) {
            bytes_.push_back(static_cast<uint8_t>(ps | 0x80));
        }
        bytes_.push_back(static_cast<uint8_t>(ps));
    }
}

bool TaskLog::find(uint64_t end_ps, Spent &sum) const {
    // Tasks that take no time may end at the same instant: the last one is meant, which took it.
    auto found =
        std::upper_bound(tasks_.begin(), tasks_.end(), end_ps,
                         [](uint64_t wanted, const Task &task) { return wanted < task.end_ps; });
    bool any = false;
    while (found != tasks_.begin() && (--found)->end_ps == end_ps) {
        const uint8_t *at = bytes_.data() + found->at;
        const uint32_t mask = at[0] | static_cast<uint32_t>(at[1]) << 8;
        at += 2;
        for (uint32_t cause = 0; cause < CAUSES; cause++) {
            if ((mask >> cause & 1) == 0) {
                continue;
            }
            uint64_t ps = 0;
            for (uint32_t shift = 0;; shift += 7) {
                const uint8_t byte = *at++;
                ps |= static_cast<uint64_t>(byte & 0x7F) << shift;
                if ((byte & 0x80) == 0) {
                    break;
                }
            }
            sum[cause] += ps;
        }
        any = true;
        if (mask != 0) {
            break;
        }
    }
    return any;
}

void CriticalPath::begin(uint64_t now) {
    end_ = now;
    groups_.clear();
    places_.clear();
}

CriticalPath::Group &CriticalPath::group(const char *kind, const char *name) {
    const std::string key = std::string(kind) + ' ' + name;
    const auto [found, fresh] = places_.emplace(key, groups_.size());
    if (fresh) {
        groups_.emplace_back();
        groups_.back().kind = kind;
        groups_.back().name = name;
    }
    return groups_[found->second];
}

// Whether a stretch comes after all others. What nobody accounts for before it is a gap.
bool CriticalPath::reaches(uint64_t begin_ps, uint64_t end_ps) {
    if (begin_ps < end_ || end_ps <= begin_ps) {
        return false;
    }
    if (begin_ps > end_) {
        Group &gap = group("other", "waiting");
        gap.count++;
        gap.ps += begin_ps - end_;
        gap.spent[static_cast<uint32_t>(Cause::SCHEDULER)] += begin_ps - end_;
    }
    end_ = end_ps;
    return true;
}

void CriticalPath::add(const kl_stretch &stretch, const TaskLog *log) {
    if (!reaches(stretch.begin_ps, stretch.end_ps)) {
        return;
    }
    const bool task = stretch.kind == KL_STRETCH_TASK;
    const char *kind = task ? "task" : stretch.kind == KL_STRETCH_SUBMIT ? "submit" : "scheduler";
    Group &into = group(kind, stretch.name != nullptr ? stretch.name : "");
    const uint64_t ps = stretch.end_ps - stretch.begin_ps;
    into.count++;
    into.ps += ps;
    Spent spent = {};
    uint64_t known = 0;
    if (task && log != nullptr && log->find(stretch.end_ps, spent)) {
        for (uint32_t cause = 0; cause < CAUSES; cause++) {
            known += spent[cause];
        }
    }
    if (known != ps) {
        spent = {};
        spent[static_cast<uint32_t>(stretch.kind == KL_STRETCH_SUBMIT ? Cause::SUBMIT
                                                                      : Cause::SCHEDULER)] = ps;
    }
    for (uint32_t cause = 0; cause < CAUSES; cause++) {
        into.spent[cause] += spent[cause];
    }
}

void CriticalPath::add_hop(uint64_t begin_ps, uint64_t end_ps, Cause cause, const char *link) {
    if (!reaches(begin_ps, end_ps)) {
        return;
    }
    Group &into = group("transfer", link);
    into.count++;
    into.ps += end_ps - begin_ps;
    into.spent[static_cast<uint32_t>(cause)] += end_ps - begin_ps;
}

std::vector<CriticalPath::Group> CriticalPath::groups(uint64_t now) const {
    CriticalPath whole = *this;
    // A last stretch without a length, so that what comes before it is a gap.
    if (now > whole.end_) {
        Group &gap = whole.group("other", "waiting");
        gap.count++;
        gap.ps += now - whole.end_;
        gap.spent[static_cast<uint32_t>(Cause::SCHEDULER)] += now - whole.end_;
    }
    return whole.groups_;
}

} // namespace kernloom
