// What limited the device since the last report began.
#include "simulator.hpp"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

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

// Shares are of the time of the PEs that took part. While no PE has anything to do, the fabric is
// the cause.
const std::string &Simulator::report() {
    accounts_.settle(now_);
    const uint64_t elapsed = now_ - report_begin_;
    uint64_t participants = 0;
    unsigned __int128 spent[CAUSES] = {};
    unsigned __int128 busy[KL_CORE_TYPES] = {};
    uint64_t counts[KL_CORE_TYPES] = {};
    for (uint32_t i = 0; i < pes_.size(); i++) {
        const Accounts::Pe &pe = accounts_.pes()[i];
        const uint32_t type = settings_.arch.core_types[pes_[i]->node.pe];
        counts[type]++;
        for (uint32_t unit = 0; unit < KL_UNITS; unit++) {
            busy[type] += pe.spent[static_cast<uint32_t>(Cause::COMPUTE_MATRIX) + unit];
        }
        if (pe.tasks > 0) {
            participants++;
            for (uint32_t cause = 0; cause < CAUSES; cause++) {
                spent[cause] += pe.spent[cause];
            }
        }
    }
    if (participants == 0) {
        participants = 1;
        spent[static_cast<uint32_t>(Cause::IDLE)] = elapsed;
    }
    for (const Cause cause : {Cause::PCIE, Cause::CONTROL}) {
        const unsigned __int128 gap =
            static_cast<unsigned __int128>(accounts_.gap(cause)) * participants;
        spent[static_cast<uint32_t>(cause)] += gap;
        unsigned __int128 &idle = spent[static_cast<uint32_t>(Cause::IDLE)];
        idle -= gap < idle ? gap : idle;
    }
    uint32_t limiter = static_cast<uint32_t>(Cause::CONTROL);
    for (uint32_t cause = 0; cause < static_cast<uint32_t>(Cause::IDLE); cause++) {
        if (spent[cause] > spent[limiter]) {
            limiter = cause;
        }
    }
    report_.clear();
    add_line(report_, "virtual_ps=%" PRIu64, elapsed);
    add_line(report_, "events=%" PRIu64, events_ - events_before_);
    add_line(report_, "tasks=%" PRIu64, tasks_run_);
    add_line(report_, "messages=%" PRIu64, messages_run_);
    add_line(report_, "limiter=%s", CAUSE_NAMES[limiter]);
    const unsigned __int128 whole = static_cast<unsigned __int128>(participants) * elapsed;
    for (uint32_t cause = 0; cause < CAUSES; cause++) {
        add_share(report_, "share", CAUSE_NAMES[cause], share(spent[cause], whole));
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
    return report_;
}

} // namespace kernloom
