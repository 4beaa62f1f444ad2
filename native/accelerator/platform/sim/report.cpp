// What limited the device since the last report began.
#include "simulator.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <functional>

namespace kernloom {

namespace {

constexpr uint64_t PARTS = 10000; // shares have four digits

uint64_t share(unsigned __int128 part, unsigned __int128 whole) {
    return whole == 0 ? 0 : static_cast<uint64_t>((part * PARTS + whole / 2) / whole);
}

__attribute__((format(printf, 2, 3))) void add_line(std::string &text, const char *format, ...) {
    char line[128];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    text += line;
    text += '\n';
}

void add_share(std::string &text, const char *kind, const char *name, uint64_t value) {
    add_line(text, "%s.%s=%" PRIu64 ".%04" PRIu64, kind, name, value / PARTS, value % PARTS);
}

} // namespace

void Simulator::begin_report() {
    accounts_.begin(now_);
    for (Link &link : links_) {
        link.bytes = 0;
    }
    for (Sip &sip : sips_) {
        sip.noc_sent = 0;
        sip.noc_received = 0;
    }
    for (const auto &pe : pes_) {
        pe->log.clear();
    }
    if (trace_) {
        trace_->begin_launch();
    }
    path_.begin(now_);
    notes_.clear();
    report_begin_ = now_;
    events_before_ = events_;
    hbm_bytes_ = 0;
    sram_bytes_ = 0;
    sram_peak_ = 0;
    tasks_run_ = 0;
    messages_run_ = 0;
}

const Accounts &Simulator::settled_accounts() {
    accounts_.settle(now_);
    return accounts_;
}

// Bytes at one end of all links of a kind. The management CPU is at the NoC without a port that
// could limit it.
uint64_t Simulator::port_bytes(LinkKind kind, bool arrived) const {
    uint64_t bytes = 0;
    for (const Sip &sip : sips_) {
        if (kind == LinkKind::NOC) {
            bytes += arrived ? sip.noc_received : sip.noc_sent;
        } else if (kind == LinkKind::SIP) {
            bytes += links_[arrived ? sip.in : sip.out].bytes;
        } else {
            const uint32_t *links = kind == LinkKind::PCIE     ? sip.pcie
                                    : kind == LinkKind::IO_CPU ? sip.io_cpu
                                                               : sip.management;
            bytes += links_[links[arrived ? 0 : 1]].bytes;
        }
    }
    if (kind == LinkKind::NOC) {
        for (const Cube &cube : cubes_) {
            bytes += links_[arrived ? cube.noc_in : cube.noc_out].bytes;
        }
    }
    return bytes;
}

namespace {

constexpr uint32_t MOST_GROUPS = 12;

// The largest groups in order of time; the rest are one.
std::vector<CriticalPath::Group> largest(std::vector<CriticalPath::Group> groups) {
    if (groups.size() <= MOST_GROUPS) {
        return groups;
    }
    std::vector<uint64_t> sizes;
    for (const CriticalPath::Group &group : groups) {
        sizes.push_back(group.ps);
    }
    std::nth_element(sizes.begin(), sizes.begin() + MOST_GROUPS - 2, sizes.end(),
                     std::greater<uint64_t>());
    const uint64_t least = sizes[MOST_GROUPS - 2];
    std::vector<CriticalPath::Group> found;
    CriticalPath::Group rest;
    rest.kind = "other";
    rest.name = "the rest";
    for (CriticalPath::Group &group : groups) {
        if (group.ps >= least && found.size() < MOST_GROUPS - 1) {
            found.push_back(std::move(group));
            continue;
        }
        rest.count += group.count;
        rest.ps += group.ps;
        for (uint32_t cause = 0; cause < CAUSES; cause++) {
            rest.spent[cause] += group.spent[cause];
        }
    }
    found.push_back(std::move(rest));
    return found;
}

} // namespace

// path.N=KIND|COUNT|PS|CAUSE:PS,...|NAME
void Simulator::add_path() {
    Spent on_path = {};
    std::vector<CriticalPath::Group> groups = path_.groups(now_);
    for (const CriticalPath::Group &group : groups) {
        for (uint32_t cause = 0; cause < CAUSES; cause++) {
            on_path[cause] += group.spent[cause];
        }
    }
    for (uint32_t cause = 0; cause < CAUSES; cause++) {
        if (on_path[cause] > 0) {
            add_line(report_, "path_cause.%s=%" PRIu64, CAUSE_NAMES[cause], on_path[cause]);
        }
    }
    uint32_t place = 0;
    for (const CriticalPath::Group &group : largest(std::move(groups))) {
        std::string causes;
        for (uint32_t cause = 0; cause < CAUSES; cause++) {
            if (group.spent[cause] > 0) {
                causes += std::string(causes.empty() ? "" : ",") + CAUSE_NAMES[cause] + ':' +
                          std::to_string(group.spent[cause]);
            }
        }
        report_ += "path." + std::to_string(place++) + '=' + group.kind + '|' +
                   std::to_string(group.count) + '|' + std::to_string(group.ps) + '|' + causes +
                   '|' + group.name + '\n';
    }
}

// pe.SIP.CUBE.PE=PS,... in the order of the causes
void Simulator::add_pes(const std::vector<Spent> &spent) {
    report_ += "causes=";
    for (uint32_t cause = 0; cause < CAUSES; cause++) {
        report_ += std::string(cause > 0 ? "," : "") + CAUSE_NAMES[cause];
    }
    report_ += '\n';
    for (uint32_t i = 0; i < spent.size(); i++) {
        const kl_node node = pes_[i]->node;
        add_line(report_, "pe.%u.%u.%u=%" PRIu64, node.sip, node.cube, node.pe, spent[i][0]);
        report_.pop_back();
        for (uint32_t cause = 1; cause < CAUSES; cause++) {
            report_ += ',' + std::to_string(spent[i][cause]);
        }
        report_ += '\n';
    }
}

// Shares are of the time of the PEs that took part.
const std::string &Simulator::report() {
    accounts_.settle(now_);
    const uint64_t elapsed = now_ - report_begin_;
    uint64_t participants = 0;
    std::vector<Spent> all;
    unsigned __int128 sum[CAUSES] = {};
    unsigned __int128 busy[KL_CORE_TYPES] = {};
    uint64_t counts[KL_CORE_TYPES] = {};
    for (uint32_t i = 0; i < pes_.size(); i++) {
        all.push_back(accounts_.spent(i));
        const uint32_t type = settings_.arch.core_types[pes_[i]->node.pe];
        counts[type]++;
        for (uint32_t unit = 0; unit < KL_UNITS; unit++) {
            busy[type] += all[i][static_cast<uint32_t>(Cause::COMPUTE_MATRIX) + unit];
        }
        if (accounts_.pes()[i].tasks > 0) {
            participants++;
            for (uint32_t cause = 0; cause < CAUSES; cause++) {
                sum[cause] += all[i][cause];
            }
        }
    }
    if (participants == 0) {
        participants = 1;
        std::copy(all[0].begin(), all[0].end(), sum);
    }
    uint32_t limiter = static_cast<uint32_t>(Cause::SCHEDULER);
    for (uint32_t cause = 0; cause < static_cast<uint32_t>(Cause::NO_WORK); cause++) {
        if (sum[cause] > sum[limiter]) {
            limiter = cause;
        }
    }
    report_.clear();
    add_line(report_, "virtual_ps=%" PRIu64, elapsed);
    add_line(report_, "events=%" PRIu64, events_ - events_before_);
    add_line(report_, "tasks=%" PRIu64, tasks_run_);
    add_line(report_, "messages=%" PRIu64, messages_run_);
    add_line(report_, "pes=%" PRIu64, participants);
    add_line(report_, "limiter=%s", CAUSE_NAMES[limiter]);
    const unsigned __int128 whole = static_cast<unsigned __int128>(participants) * elapsed;
    for (uint32_t cause = 0; cause < CAUSES; cause++) {
        add_share(report_, "share", CAUSE_NAMES[cause], share(sum[cause], whole));
    }
    for (uint32_t cause = 0; cause < CAUSES; cause++) {
        if (sum[cause] > 0) {
            add_line(report_, "spent.%s=%" PRIu64, CAUSE_NAMES[cause],
                     static_cast<uint64_t>(sum[cause]));
        }
    }
    add_share(report_, "utilisation", "matrix",
              share(busy[KL_CORE_MATRIX],
                    static_cast<unsigned __int128>(counts[KL_CORE_MATRIX]) * elapsed));
    add_share(report_, "utilisation", "vector",
              share(busy[KL_CORE_VECTOR],
                    static_cast<unsigned __int128>(counts[KL_CORE_VECTOR]) * elapsed));
    add_line(report_, "bytes.hbm=%" PRIu64, hbm_bytes_);
    add_line(report_, "bytes.sram=%" PRIu64, sram_bytes_);
    for (uint32_t kind = 0; kind < LINK_KINDS; kind++) {
        const LinkKind link = static_cast<LinkKind>(kind);
        uint64_t bytes = port_bytes(link, true);
        if (link != LinkKind::NOC && link != LinkKind::SIP) {
            bytes += port_bytes(link, false); // down and up
        }
        add_line(report_, "bytes.%s=%" PRIu64, LINK_NAMES[kind], bytes);
    }
    add_line(report_, "peak.sram=%" PRIu64, sram_peak_);
    if (settings_.times) {
        add_line(report_, "overhead_ps=%" PRIu64, accounts_.overhead());
        add_path();
    }
    report_ += notes_;
    if (settings_.each_pe) {
        add_pes(all);
    }
    return report_;
}

} // namespace kernloom
