#include "settings.hpp"

#include <charconv>
#include <map>
#include <string_view>

#include "kernloom/trace_level.hpp"

namespace kernloom {

namespace {

constexpr const char *UNIT_NAMES[KL_UNITS] = {"matrix", "vector", "scalar"};
constexpr const char *DTYPE_NAMES[KL_DTYPES] = {"float32", "float64", "int32", "int64", "uint8"};
constexpr const char *CORE_NAMES[KL_CORE_TYPES] = {"matrix", "vector"};
constexpr uint32_t MOST_UNITS = 64; // channels or banks
constexpr uint64_t MOST_PES = 1 << 16;
constexpr uint64_t MOST_THREADS = 64; // also in device/accelerator/options.py
constexpr uint32_t MOST_ENGINES = 64;
constexpr uint64_t MOST_NS = 1000ull * 1000 * 1000 * 1000;
constexpr double MOST_BANDWIDTH = 1e9;

template <typename Number> bool parse_number(std::string_view text, Number &number) {
    const char *end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, number);
    return parsed.ec == std::errc() && parsed.ptr == end && !text.empty();
}

// Splits off what comes before a separator; all of the text if there is none.
std::string_view split(std::string_view &text, char separator) {
    const size_t at = text.find(separator);
    const std::string_view first = text.substr(0, at);
    text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
    return first;
}

// The key that a user types for a setting.
std::string typed_key(const std::string &key) {
    const std::string_view faults = "faults.";
    if (key.starts_with(faults)) {
        return "target.options." + key.substr(faults.size());
    }
    return (key == "threads" ? "target.options." : "arch.") + key;
}

// Looks values up and keeps the first thing that is wrong with one.
class Reader {
  public:
    explicit Reader(std::string_view text) {
        while (!text.empty()) {
            std::string_view line = split(text, '\n');
            if (line.find('=') == std::string_view::npos) {
                continue;
            }
            const std::string_view key = split(line, '=');
            values_[key] = line;
        }
    }

    void refuse(const std::string &key, const std::string &reason) {
        if (problem_.empty()) {
            problem_ = typed_key(key) + ": " + reason;
        }
    }

    const std::string &problem() const {
        return problem_;
    }

    const std::map<std::string_view, std::string_view> &values() const {
        return values_;
    }

    std::string_view optional(const std::string &key) const {
        const auto found = values_.find(key);
        return found == values_.end() ? std::string_view() : found->second;
    }

    bool has(const std::string &key) const {
        return values_.count(key) > 0;
    }

    uint64_t whole(const std::string &key, uint64_t least, uint64_t most) {
        uint64_t value = least;
        if (!present(key)) {
            return least;
        }
        const std::string_view text = optional(key);
        if (!parse_number(text, value)) {
            refuse(key, "is no whole number: " + std::string(text));
            return least;
        }
        if (value < least && least == 1) {
            refuse(key, "must be above 0");
        } else if (value < least || value > most) {
            refuse(key, "must be between " + std::to_string(least) + " and " +
                            std::to_string(most) + ", not " + std::string(text));
        }
        return value;
    }

    // A number that is not negative; above 0 if it must not be zero.
    double number(const std::string &key, bool positive, double most) {
        double value = 1;
        if (!present(key)) {
            return 1;
        }
        const std::string_view text = optional(key);
        if (!parse_number(text, value) || value != value) {
            refuse(key, "is no number: " + std::string(text));
        } else if (positive ? value <= 0 : value < 0) {
            refuse(key, positive ? "must be above 0" : "must not be negative");
        } else if (value > most) {
            refuse(key, "is too large: " + std::string(text));
        } else {
            return value;
        }
        return 1;
    }

    uint64_t picoseconds(const std::string &key) {
        return static_cast<uint64_t>(number(key, false, MOST_NS) * 1000 + 0.5);
    }

  private:
    bool present(const std::string &key) {
        if (!has(key)) {
            refuse(key, "is missing");
            return false;
        }
        return true;
    }

    std::map<std::string_view, std::string_view> values_;
    std::string problem_;
};

void read_topology(Reader &reader, Settings &settings) {
    kl_arch &arch = settings.arch;
    arch.sips = static_cast<uint32_t>(reader.whole("topology.sips", 1, 65535));
    arch.cubes = static_cast<uint32_t>(reader.whole("topology.cubes", 1, 65535));
    const std::string_view prefix = "topology.pes.";
    for (const auto &[key, value] : reader.values()) {
        if (key.substr(0, prefix.size()) == prefix && key.substr(prefix.size()) != "matrix" &&
            key.substr(prefix.size()) != "vector") {
            reader.refuse(std::string(key), "there is no such core type; there are matrix, vector");
        }
    }
    for (uint32_t type = 0; type < KL_CORE_TYPES; type++) {
        const std::string key = std::string(prefix) + CORE_NAMES[type];
        if (!reader.has(key)) {
            continue;
        }
        const uint64_t count = reader.whole(key, 0, KL_MAX_PES_PER_CUBE);
        for (uint64_t i = 0; i < count; i++) {
            if (arch.pes == KL_MAX_PES_PER_CUBE) {
                reader.refuse("topology.pes",
                              "a cube has at most " + std::to_string(KL_MAX_PES_PER_CUBE) + " PEs");
                break;
            }
            arch.core_types[arch.pes++] = static_cast<uint8_t>(type);
        }
    }
    if (arch.pes == 0) {
        reader.refuse("topology.pes", "there is no PE");
    }
    if (uint64_t{arch.sips} * arch.cubes * arch.pes > MOST_PES) {
        reader.refuse("topology", "more than " + std::to_string(MOST_PES) + " PEs");
    }
}

void read_memories(Reader &reader, Settings &settings) {
    kl_arch &arch = settings.arch;
    arch.hbm_bytes = reader.whole("hbm.bytes", 1, KL_VIRTUAL_BASE);
    settings.hbm_bandwidth = reader.number("hbm.bandwidth", true, MOST_BANDWIDTH);
    settings.hbm_channels = static_cast<uint32_t>(reader.whole("hbm.channels", 1, MOST_UNITS));
    settings.hbm_interleave = reader.whole("hbm.interleave", 1, KL_VIRTUAL_BASE);
    settings.hbm_latency_ps = reader.picoseconds("hbm.latency_ns");
    arch.sram_bytes = reader.whole("sram.bytes", 1, KL_VIRTUAL_BASE);
    settings.sram_banks = static_cast<uint32_t>(reader.whole("sram.banks", 1, MOST_UNITS));
    settings.sram_bank_bandwidth = reader.number("sram.bank_bandwidth", true, MOST_BANDWIDTH);
    settings.sram_latency_ps = reader.picoseconds("sram.latency_ns");
    arch.page_bytes = reader.whole("mmu.page", 1, KL_VIRTUAL_BASE);
    settings.tlb_entries = static_cast<uint32_t>(reader.whole("mmu.tlb_entries", 1, 1 << 20));
    settings.walkers = static_cast<uint32_t>(reader.whole("mmu.walkers", 1, 1 << 10));
    settings.walk_ps = reader.picoseconds("mmu.walk_ns");
    settings.hit_ps = reader.picoseconds("mmu.hit_ns");
    settings.engines = static_cast<uint32_t>(reader.whole("dma.engines", 1, MOST_ENGINES));
    settings.engine_bandwidth = reader.number("dma.bandwidth", true, MOST_BANDWIDTH);
    settings.issue_ps = reader.picoseconds("dma.issue_ns");
}

void read_links(Reader &reader, Settings &settings) {
    for (uint32_t kind = 0; kind < LINK_KINDS; kind++) {
        const std::string key = std::string("links.") + LINK_NAMES[kind];
        if (static_cast<LinkKind>(kind) == LinkKind::SIP && settings.arch.sips == 1 &&
            !reader.has(key + ".bandwidth")) {
            settings.links[kind].bandwidth = 1; // a single sip has nothing to link to
            continue;
        }
        settings.links[kind].latency_ps = reader.picoseconds(key + ".latency_ns");
        settings.links[kind].bandwidth = reader.number(key + ".bandwidth", true, MOST_BANDWIDTH);
    }
}

void read_compute(Reader &reader, Settings &settings) {
    kl_arch &arch = settings.arch;
    settings.core_khz =
        static_cast<uint64_t>(reader.number("clock.core_mhz", true, 1e6) * 1000 + 0.5);
    if (settings.core_khz == 0) {
        reader.refuse("clock.core_mhz", "must be at least 0.001");
        return;
    }
    arch.core_period_ps = (1000000000ull + settings.core_khz / 2) / settings.core_khz;
    for (uint32_t type = 0; type < KL_CORE_TYPES; type++) {
        for (uint32_t unit = 0; unit < KL_UNITS; unit++) {
            for (uint32_t dtype = 0; dtype < KL_DTYPES; dtype++) {
                const std::string key = std::string("compute.") + CORE_NAMES[type] + "." +
                                        UNIT_NAMES[unit] + "." + DTYPE_NAMES[dtype];
                if (reader.has(key)) {
                    arch.rates[type][unit][dtype] = reader.number(key, false, 1e12);
                }
            }
        }
    }
    for (uint32_t unit = 0; unit < KL_UNITS; unit++) {
        const std::string key = std::string("compute.startup_cycles.") + UNIT_NAMES[unit];
        if (reader.has(key)) {
            arch.unit_startup_cycles[unit] = reader.whole(key, 0, 1 << 30);
        }
    }
    arch.submit_ps = reader.picoseconds("control.submit_ns");
    arch.dispatch_ps = reader.picoseconds("control.dispatch_ns");
    arch.complete_ps = reader.picoseconds("control.complete_ns");
    arch.switch_ps = reader.picoseconds("control.switch_ns");
    arch.register_store_ps = reader.picoseconds("control.register_store_ns");
    arch.register_load_ps = reader.picoseconds("control.register_load_ns");
}

void read_dead(Reader &reader, Settings &settings) {
    std::string_view text = reader.optional("faults.dead");
    while (!text.empty()) {
        const std::string_view one = split(text, ',');
        std::string_view rest = one;
        uint16_t numbers[3];
        bool good = true;
        for (uint16_t &number : numbers) {
            good = good && parse_number(split(rest, '.'), number);
        }
        const kl_arch &arch = settings.arch;
        if (!good || !rest.empty()) {
            reader.refuse("faults.dead", "must be SIP.CUBE.PE, not " + std::string(one));
        } else if (numbers[0] >= arch.sips || numbers[1] >= arch.cubes || numbers[2] >= arch.pes) {
            reader.refuse("faults.dead", "there is no PE " + std::string(one));
        } else {
            settings.faults.dead.push_back({KL_NODE_PE, numbers[0], numbers[1], numbers[2]});
        }
    }
}

void read_slow(Reader &reader, Settings &settings) {
    std::string_view text = reader.optional("faults.slow");
    while (!text.empty()) {
        const std::string_view one = split(text, ',');
        std::string_view rest = one;
        const std::string_view name = split(rest, ':');
        double factor = 0;
        if (!parse_number(rest, factor) || !(factor >= 1) || factor > 1e6) {
            reader.refuse("faults.slow",
                          "must be LINK:FACTOR with a factor from 1, not " + std::string(one));
            continue;
        }
        bool known = false;
        for (uint32_t kind = 0; kind < LINK_KINDS; kind++) {
            if (name == LINK_NAMES[kind]) {
                settings.links[kind].bandwidth /= factor;
                known = true;
            }
        }
        if (name == "hbm") {
            settings.hbm_bandwidth /= factor;
            known = true;
        }
        if (!known) {
            reader.refuse("faults.slow", "there is no link " + std::string(name) +
                                             "; there are pcie, io_cpu, management, noc, sip, hbm");
        }
    }
}

void read_faults(Reader &reader, Settings &settings) {
    Faults &faults = settings.faults;
    read_dead(reader, settings);
    read_slow(reader, settings);
    if (reader.has("faults.lose")) {
        faults.lose = reader.whole("faults.lose", 0, UINT64_MAX);
    }
    if (reader.has("faults.corrupt")) {
        faults.corrupt = reader.whole("faults.corrupt", 0, UINT64_MAX);
    }
    std::string_view late = reader.optional("faults.late");
    if (!late.empty()) {
        const std::string text(late);
        uint64_t ns = 0;
        if (!parse_number(split(late, ':'), faults.late) || !parse_number(late, ns) ||
            ns > MOST_NS) {
            reader.refuse("faults.late", "must be N:NS, not " + text);
        }
        faults.late_ps = ns * 1000;
    }
}

// Resources that take no time, nor have anything wait for them.
void make_infinite(Reader &reader, Settings &settings) {
    const auto link = [&](LinkKind kind) {
        settings.links[static_cast<uint32_t>(kind)] = {0, MOST_BANDWIDTH};
    };
    kl_arch &arch = settings.arch;
    std::string_view text = reader.optional("infinite");
    while (!text.empty()) {
        const std::string_view name = split(text, ',');
        bool known = false;
        for (uint32_t kind = 0; kind < LINK_KINDS; kind++) {
            if (name == LINK_NAMES[kind]) {
                link(static_cast<LinkKind>(kind));
                known = true;
            }
        }
        if (name == "compute") {
            settings.infinite |= INFINITE_COMPUTE;
        } else if (name == "dma") {
            settings.engines = MOST_ENGINES;
            settings.engine_bandwidth = MOST_BANDWIDTH;
            settings.issue_ps = 0;
        } else if (name == "hbm") {
            settings.hbm_bandwidth = MOST_BANDWIDTH;
            settings.hbm_latency_ps = 0;
        } else if (name == "sram") {
            settings.sram_bank_bandwidth = MOST_BANDWIDTH;
            settings.sram_latency_ps = 0;
        } else if (name == "translation") {
            settings.walk_ps = settings.hit_ps = 0;
        } else if (name == "scheduler") {
            arch.dispatch_ps = arch.complete_ps = arch.switch_ps = 0;
            arch.register_store_ps = arch.register_load_ps = 0;
        } else if (name == "submit") {
            arch.submit_ps = 0;
        } else if (!known) {
            reader.refuse("infinite", "there is no resource " + std::string(name));
        }
    }
}

} // namespace

bool parse_settings(const char *text, Settings &settings, std::string &problem) {
    Reader reader(text);
    read_topology(reader, settings);
    read_memories(reader, settings);
    read_links(reader, settings);
    read_compute(reader, settings);
    read_faults(reader, settings);
    if (reader.has("threads")) {
        settings.threads = static_cast<uint32_t>(reader.whole("threads", 1, MOST_THREADS));
    }
    settings.trace_level = trace_level(reader.optional("trace"), reader.optional("trace.level"));
    settings.times = reader.optional("times") == "1";
    settings.each_pe = reader.optional("pes") == "1";
    make_infinite(reader, settings);
    problem = reader.problem();
    return problem.empty();
}

} // namespace kernloom
