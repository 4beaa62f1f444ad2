#include "recorder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernloom/float_control.h"

namespace kernloom::core {

namespace {

const char *name_of_unit(std::uint32_t unit) {
    static constexpr const char *names[] = {"matrix", "vector", "scalar"};
    return unit < KL_UNITS ? names[unit] : "unknown";
}

const char *name_of_dtype(std::uint32_t dtype) {
    static constexpr const char *names[] = {"float32", "float64", "int32", "int64", "uint8"};
    return dtype < KL_DTYPES ? names[dtype] : "unknown";
}

// Bytes from the first to the last that rows touch; false if no address can be so large.
bool extent(const kl_rows &rows, std::uint64_t stride, std::uint64_t &bytes) {
    bytes = 0;
    if (!rows.rows || !rows.bytes)
        return true;
    std::uint64_t before;
    return !__builtin_mul_overflow(rows.rows - 1, stride, &before) &&
           !__builtin_add_overflow(before, rows.bytes, &bytes);
}

} // namespace

const kl_core_functions *Recorder::table() {
    static constexpr kl_core_functions functions = {
        [](kl_core *core, std::uint64_t bytes) { return self(core).allocate(bytes); },
        [](kl_core *core, void *to, std::uint64_t from, const kl_rows *rows) {
            return self(core).copy(KL_ACTION_LOAD, to, from, *rows);
        },
        [](kl_core *core, std::uint64_t to, const void *from, const kl_rows *rows) {
            return self(core).copy(KL_ACTION_STORE, const_cast<void *>(from), to, *rows);
        },
        [](kl_core *core, kl_tag tag) { self(core).wait(tag); },
        [](kl_core *core, std::uint32_t unit, std::uint32_t dtype, std::uint64_t operations) {
            self(core).charge(unit, dtype, operations);
        },
        [](kl_core *core, std::uint32_t unit, std::uint64_t cycles) {
            self(core).charge_cycles(unit, cycles);
        },
        [](kl_core *core, const char *message) {
            self(core).fail_with(KL_STATUS_INVALID, text_of("failed: %.800s", message));
        },
    };
    return &functions;
}

Recorder::Recorder(const kl_platform &platform, kl_node node, Sram &sram, std::string title)
    : kl_core{}, platform_(platform), node_(node), sram_(sram), title_(std::move(title)) {
    functions = table();
    sip = node.sip;
    cube = node.cube;
    pe = node.pe;
    blocks = 1;
    sram_bytes = sram.bytes();
}

void Recorder::run(kl_core_entry_function entry, const std::uint64_t *arguments) {
    const kl_float_control control = kl_float_read();
    entry(this, arguments);
    // Else the next task on this thread would compute in another way.
    if (const char *const changed = kl_float_restore(control))
        fail_with(KL_STATUS_CHANGED_STATE, text_of("changed %s and did not restore it", changed));
    // Stores first: one from the destination of a load that was not waited for gets no data.
    for (const std::uint32_t kind : {KL_ACTION_STORE, KL_ACTION_LOAD})
        for (const Pending &copy : pending_)
            if (copy.kind == kind)
                move(copy);
    pending_.clear();
    sram_.clear();
}

void Recorder::fail_with(std::uint32_t status, const std::string &reason, std::uint64_t address) {
    if (!outcome_.ok())
        return;
    outcome_ = Outcome::failure(
        status, text_of("%s: %s %s", name_of(node_).c_str(), title_.c_str(), reason.c_str()),
        address);
}

std::uint32_t Recorder::core_type() const {
    return platform_.arch->core_types[node_.pe];
}

void *Recorder::allocate(std::uint64_t bytes) {
    void *at = outcome_.ok() ? sram_.allocate(bytes) : nullptr;
    if (at)
        return at;
    fail_with(KL_STATUS_OUT_OF_MEMORY,
              text_of("needs %llu bytes of SRAM on top of %llu, and a PE has %llu "
                      "(arch.sram.bytes)",
                      (unsigned long long)bytes, (unsigned long long)sram_.used(),
                      (unsigned long long)sram_.bytes()));
    return sram_.substitute(bytes);
}

kl_tag Recorder::copy(std::uint32_t kind, void *sram, std::uint64_t address, const kl_rows &rows) {
    const bool load = kind == KL_ACTION_LOAD;
    const kl_tag tag = ++last_tag_;
    std::uint64_t in_sram, in_device, offset;
    if (!outcome_.ok())
        return tag;
    if (!extent(rows, rows.sram_stride, in_sram) || !extent(rows, rows.device_stride, in_device) ||
        in_device > ~0ull - address) {
        fail_with(KL_STATUS_OUT_OF_BOUNDS,
                  text_of("%s %llu rows of %llu bytes, which no memory has",
                          load ? "loads" : "stores", (unsigned long long)rows.rows,
                          (unsigned long long)rows.bytes),
                  address);
        return tag;
    }
    if (rows.rows > 1 && rows.bytes && !rows.device_stride && !rows.sram_stride) {
        // Nothing but their number would bound the time that they take.
        fail_with(KL_STATUS_INVALID,
                  text_of("%s %llu rows of %llu bytes, all between the same places: both strides "
                          "are 0",
                          load ? "loads" : "stores", (unsigned long long)rows.rows,
                          (unsigned long long)rows.bytes));
        return tag;
    }
    if (address < KL_VIRTUAL_BASE || address > KL_SRAM_BASE || in_device > KL_SRAM_BASE - address) {
        fail_with(KL_STATUS_OUT_OF_BOUNDS,
                  text_of("%s address 0x%llx, which is no virtual address",
                          load ? "loads from" : "stores to", (unsigned long long)address),
                  address);
        return tag;
    }
    if (!sram_.contains(sram, in_sram, offset)) {
        fail_with(KL_STATUS_OUT_OF_BOUNDS,
                  text_of("%s %llu bytes outside the SRAM that it has allocated (%llu bytes), at "
                          "byte offset %lld",
                          load ? "loads to" : "stores from", (unsigned long long)in_sram,
                          (unsigned long long)sram_.used(), (long long)offset));
        return tag;
    }
    unsigned char *const bytes = static_cast<unsigned char *>(sram);
    for (std::uint64_t row = 0; load && rows.bytes && row < rows.rows; row++)
        std::memset(bytes + row * rows.sram_stride, UNDEFINED, rows.bytes);
    pending_.push_back({tag, kind, bytes, address, rows});
    kl_action action{};
    action.kind = kind;
    action.tag = tag;
    action.address = address;
    action.sram = offset;
    action.rows = rows;
    actions_.push_back(action);
    return tag;
}

void Recorder::move(const Pending &copy) {
    const bool load = copy.kind == KL_ACTION_LOAD;
    kl_fault fault{};
    if (!outcome_.ok() ||
        (load
             ? platform_.load(platform_.self, node_, copy.sram, copy.address, &copy.rows, &fault)
             : platform_.store(platform_.self, node_, copy.address, copy.sram, &copy.rows, &fault)))
        return;
    fail_with(
        KL_STATUS_OUT_OF_BOUNDS,
        text_of("%s address 0x%llx, which %s", load ? "loads from" : "stores to",
                (unsigned long long)fault.address,
                fault.reason == KL_FAULT_PHYSICAL ? "is mapped to no memory" : "is not mapped"),
        fault.address);
}

void Recorder::wait(kl_tag tag) {
    if (!outcome_.ok())
        return;
    if (tag == 0 || tag > last_tag_)
        return fail_with(KL_STATUS_INVALID, text_of("waits for tag %u, which is no copy's", tag));
    const auto copy =
        std::lower_bound(pending_.begin(), pending_.end(), tag,
                         [](const Pending &one, kl_tag wanted) { return one.tag < wanted; });
    if (copy != pending_.end() && copy->tag == tag) {
        move(*copy);
        pending_.erase(copy);
    }
    kl_action action{};
    action.kind = KL_ACTION_WAIT;
    action.tag = tag;
    actions_.push_back(action);
}

void Recorder::charge(std::uint32_t unit, std::uint32_t dtype, std::uint64_t operations) {
    if (!outcome_.ok())
        return;
    const bool known = unit < KL_UNITS && dtype < KL_DTYPES;
    const double rate = known ? platform_.arch->rates[core_type()][unit][dtype] : 0;
    const char *type = name_of_core_type(core_type());
    if (!(rate > 0))
        return fail_with(KL_STATUS_INVALID,
                         text_of("computes with the %s unit on %s, which a %s PE does not have "
                                 "(arch.compute.%s.%s.%s)",
                                 name_of_unit(unit), name_of_dtype(dtype), type, type,
                                 name_of_unit(unit), name_of_dtype(dtype)));
    const double cycles = std::ceil(static_cast<double>(operations) / rate);
    if (!(cycles < 0x1p62))
        return fail_with(KL_STATUS_INVALID, text_of("charges %llu operations at once",
                                                    (unsigned long long)operations));
    compute(unit, platform_.arch->unit_startup_cycles[unit] + static_cast<std::uint64_t>(cycles));
}

void Recorder::charge_cycles(std::uint32_t unit, std::uint64_t cycles) {
    if (!outcome_.ok())
        return;
    bool has = false;
    for (std::uint32_t dtype = 0; unit < KL_UNITS && dtype < KL_DTYPES; dtype++)
        has = has || platform_.arch->rates[core_type()][unit][dtype] > 0;
    const char *type = name_of_core_type(core_type());
    if (!has)
        return fail_with(KL_STATUS_INVALID,
                         text_of("computes with the %s unit, which a %s PE does not have "
                                 "(arch.compute.%s.%s)",
                                 name_of_unit(unit), type, type, name_of_unit(unit)));
    compute(unit, cycles);
}

void Recorder::compute(std::uint32_t unit, std::uint64_t cycles) {
    if (!actions_.empty() && actions_.back().kind == KL_ACTION_COMPUTE &&
        actions_.back().unit == unit && cycles <= (1ull << 62) - actions_.back().cycles) {
        actions_.back().cycles += cycles;
        return;
    }
    kl_action action{};
    action.kind = KL_ACTION_COMPUTE;
    action.unit = unit;
    action.cycles = cycles < (1ull << 62) ? cycles : 1ull << 62;
    actions_.push_back(action);
}

} // namespace kernloom::core
