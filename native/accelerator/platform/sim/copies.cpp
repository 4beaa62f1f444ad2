// Copies between device memory and the SRAM of a PE. A copy takes a DMA engine for its issue, the
// translation of its pages, the latency of its path, and one flow for each memory it touches.
#include "simulator.hpp"

#include <bit>

namespace kernloom {

namespace {

constexpr uint64_t BANK_BYTES = 64; // consecutive bytes on one bank of an SRAM

uint64_t all_units(uint32_t units) {
    return units == 64 ? UINT64_MAX : (uint64_t{1} << units) - 1;
}

// Which of the interleaved units (channels, banks) a range touches.
uint64_t range_units(uint64_t address, uint64_t bytes, uint64_t interleave, uint32_t units) {
    if (bytes >= interleave * units) {
        return all_units(units);
    }
    const uint64_t first = address / interleave;
    const uint64_t last = (address + (bytes - 1)) / interleave;
    if (last - first + 1 >= units) {
        return all_units(units);
    }
    uint64_t mask = 0;
    for (uint64_t i = first; i <= last; i++) {
        mask |= uint64_t{1} << (i % units);
    }
    return mask;
}

uint64_t rows_units(uint64_t address, uint64_t stride, const kl_rows &rows, uint64_t interleave,
                    uint32_t units) {
    if (units == 1) {
        return 1;
    }
    if (rows.rows == 1 || stride <= interleave || stride <= rows.bytes) { // without gaps
        return range_units(address, (rows.rows - 1) * stride + rows.bytes, interleave, units);
    }
    uint64_t mask = 0;
    const uint64_t period = interleave * units; // after as many rows all comes again
    const uint64_t count = rows.rows < period ? rows.rows : period;
    for (uint64_t row = 0; row < count && mask != all_units(units); row++) {
        mask |= range_units(address + row * stride, rows.bytes, interleave, units);
    }
    return mask;
}

} // namespace

void Simulator::set_phase(uint32_t index, Phase phase, Cause cause) {
    Copy &copy = copies_[index];
    if (traces(TRANSFERS) && now_ > copy.phase_begin) {
        const uint32_t track = pes_[copy.pe]->engine_tracks[copy.engine];
        if (copy.phase == Phase::ISSUE) {
            trace_->add(track, issue_name_, copy.phase_begin, now_);
        } else if (copy.phase == Phase::HIT || copy.phase == Phase::WALK) {
            trace_->add(track, translate_name_, copy.phase_begin, now_);
        } else if (copy.phase == Phase::LATENCY) {
            trace_->add(track, latency_name_, copy.phase_begin, now_);
        }
    }
    copy.phase = phase;
    copy.cause = cause;
    copy.phase_begin = now_;
    refresh_waiting(*pes_[copy.pe]);
}

void Simulator::start_copy(Pe &pe, const kl_action &action) {
    const uint32_t index = copies_.acquire();
    Copy &copy = copies_[index];
    copy.pe = pe.index;
    copy.tag = action.tag;
    copy.load = action.kind == KL_ACTION_LOAD;
    copy.address = action.address;
    copy.sram = action.sram;
    copy.rows = action.rows;
    copy.next = NONE;
    copy.phase = Phase::QUEUED;
    copy.cause = Cause::DMA;
    copy.newer = NONE;
    copy.older = pe.newest;
    (pe.newest == NONE ? pe.oldest : copies_[pe.newest].newer) = index;
    pe.newest = index;
    for (uint32_t engine = 0; engine < pe.engines.size(); engine++) {
        if (pe.engines[engine] == NONE) {
            take_engine(pe, index, engine);
            return;
        }
    }
    (pe.queue_last == NONE ? pe.queue_first : copies_[pe.queue_last].next) = index;
    pe.queue_last = index;
}

void Simulator::take_engine(Pe &pe, uint32_t index, uint32_t engine) {
    Copy &copy = copies_[index];
    pe.engines[engine] = index;
    copy.engine = engine;
    copy.begin = now_;
    copy.phase = Phase::QUEUED;
    copy.phase_begin = now_;
    set_phase(index, Phase::ISSUE, Cause::DMA);
    queue_.push(later(settings_.issue_ps), COPY, index, ISSUE_LANE);
}

void Simulator::step_copy(uint32_t index) {
    Copy &copy = copies_[index];
    Pe &pe = *pes_[copy.pe];
    switch (copy.phase) {
    case Phase::ISSUE:
        plan_copy(pe, copy);
        if (copy.address >= KL_VIRTUAL_BASE && settings_.hit_ps > 0) {
            set_phase(index, Phase::HIT, Cause::TRANSLATION);
            queue_.push(later(settings_.hit_ps), COPY, index, HIT_LANE);
        } else {
            begin_walk(pe, index);
        }
        break;
    case Phase::HIT:
    case Phase::WALK:
        begin_walk(pe, index);
        break;
    default:
        begin_part(index);
    }
}

// The walks of a copy come one after the other, each on the cube's walker that is free first.
void Simulator::begin_walk(Pe &pe, uint32_t index) {
    Copy &copy = copies_[index];
    if (copy.walks == 0) {
        begin_latency(pe, index);
        return;
    }
    copy.walks--;
    std::vector<uint64_t> &walkers = cubes_[pe.cube].walkers;
    uint64_t *first = &walkers[0];
    for (uint64_t &walker : walkers) {
        if (walker < *first) {
            first = &walker;
        }
    }
    *first = (*first > now_ ? *first : now_) + settings_.walk_ps;
    set_phase(index, Phase::WALK, Cause::TRANSLATION);
    queue_.push(*first, COPY, index);
}

void Simulator::begin_latency(Pe &pe, uint32_t index) {
    set_phase(index, Phase::LATENCY, Cause::DMA);
    const Path path = path_of(pe, copies_[index]);
    queue_.push(later(path.latency_ps), COPY, index, path.lane);
}

// Adds bytes of one mapping, and looks their pages up in the TLB.
void Simulator::plan_mapped(Pe &pe, Copy &copy, const kl_map_entry &entry, uint64_t address,
                            const kl_rows &rows) {
    const kl_node owner = {KL_NODE_PE, entry.sip, entry.cube, entry.pe};
    if (!known(owner)) {
        return;
    }
    const uint64_t page = settings_.arch.page_bytes;
    const auto look_up = [&](uint64_t first, uint64_t bytes) {
        const uint64_t last = (first + (bytes - 1)) / page;
        for (uint64_t i = first / page; i <= last; i++) {
            copy.walks += pe.tlb.touch(i) ? 0 : 1;
        }
    };
    if (rows.device_stride <= page) {
        look_up(address, (rows.rows - 1) * rows.device_stride + rows.bytes);
    } else {
        for (uint64_t row = 0; row < rows.rows; row++) {
            look_up(address + row * rows.device_stride, rows.bytes);
        }
    }
    plan_physical(copy, pe_number(owner),
                  entry.physical_address + (address - entry.virtual_address), rows);
}

void Simulator::plan_physical(Copy &copy, uint32_t owner, uint64_t address, const kl_rows &rows) {
    const bool sram = address >= KL_SRAM_BASE;
    const uint64_t units =
        sram ? rows_units(address, rows.device_stride, rows, BANK_BYTES, settings_.sram_banks)
             : rows_units(address, rows.device_stride, rows, settings_.hbm_interleave,
                          settings_.hbm_channels);
    const uint64_t bytes = rows.rows * rows.bytes;
    for (Part &part : copy.parts) {
        if (part.owner == owner && part.sram == sram) {
            part.units |= units;
            part.bytes += bytes;
            return;
        }
    }
    copy.parts.push_back({owner, sram, units, bytes});
}

// Finds the memories that a copy touches. It ends where something is not mapped: kernels that fault
// are not replayed, but a mapping may have gone since.
void Simulator::plan_copy(Pe &pe, Copy &copy) {
    const kl_rows &rows = copy.rows;
    const uint64_t address = copy.address;
    copy.parts.clear();
    copy.walks = 0;
    copy.part = 0;
    uint64_t extent = 0;
    uint64_t bytes = 0;
    if (rows.rows == 0 || rows.bytes == 0 ||
        __builtin_mul_overflow(rows.rows, rows.bytes, &bytes) ||
        __builtin_mul_overflow(rows.rows - 1, rows.device_stride, &extent) ||
        __builtin_add_overflow(extent, rows.bytes, &extent)) {
        return;
    }
    copy.sram_banks =
        rows_units(copy.sram, rows.sram_stride, rows, BANK_BYTES, settings_.sram_banks);
    if (address < KL_VIRTUAL_BASE || address >= KL_SRAM_BASE) {
        plan_physical(copy, pe.index, address, rows);
        return;
    }
    const kl_map_entry *entry = pe.mmu.find(address);
    if (entry != nullptr && extent <= entry->bytes - (address - entry->virtual_address)) {
        plan_mapped(pe, copy, *entry, address, rows);
        return;
    }
    for (uint64_t row = 0; row < rows.rows; row++) {
        uint64_t at = address + row * rows.device_stride;
        for (uint64_t left = rows.bytes; left > 0;) {
            entry = pe.mmu.find(at);
            if (entry == nullptr) {
                return;
            }
            const uint64_t inside = entry->bytes - (at - entry->virtual_address);
            const uint64_t piece = left < inside ? left : inside;
            plan_mapped(pe, copy, *entry, at, {1, piece, piece, piece});
            at += piece;
            left -= piece;
        }
    }
}

// To the farthest memory that a copy touches: the requests to all of them are sent together.
Simulator::Path Simulator::path_of(const Pe &pe, const Copy &copy) const {
    Path farthest = {0, NOW_LANE};
    for (const Part &part : copy.parts) {
        const Pe &owner = *pes_[part.owner];
        uint64_t latency = settings_.sram_latency_ps +
                           (part.sram ? settings_.sram_latency_ps : settings_.hbm_latency_ps);
        uint32_t lane = CUBE_LANE;
        if (owner.cube != pe.cube) {
            latency += 2 * settings_.links[static_cast<uint32_t>(LinkKind::NOC)].latency_ps;
            lane = NOC_LANE;
        }
        if (owner.node.sip != pe.node.sip) {
            latency += 2 * settings_.links[static_cast<uint32_t>(LinkKind::SIP)].latency_ps;
            lane = SIP_LANE;
        }
        if (latency > farthest.latency_ps) {
            farthest = {latency, lane};
        }
    }
    return farthest;
}

void Simulator::begin_part(uint32_t index) {
    Copy &copy = copies_[index];
    if (copy.part == copy.parts.size()) {
        finish_copy(index);
        return;
    }
    const Pe &pe = *pes_[copy.pe];
    const Part &part = copy.parts[copy.part];
    const Pe &owner = *pes_[part.owner];
    shares_.clear();
    const auto units = [&](uint32_t whole, uint64_t mask, uint32_t count) {
        if (mask == all_units(count)) {
            shares_.push_back({whole, 1});
            return;
        }
        const double share = 1.0 / std::popcount(mask);
        for (uint32_t i = 0; i < count; i++) {
            if ((mask >> i & 1) != 0) {
                shares_.push_back({whole + 1 + i, share});
            }
        }
    };
    if (part.sram) {
        units(owner.sram, part.units, settings_.sram_banks);
    } else {
        units(cubes_[owner.cube].hbm, part.units, settings_.hbm_channels);
    }
    const bool load = copy.load;
    const Pe &source = load ? owner : pe;
    const Pe &target = load ? pe : owner;
    if (source.cube != target.cube) {
        shares_.push_back({links_[cubes_[source.cube].noc_out].resource, 1});
        shares_.push_back({links_[cubes_[target.cube].noc_in].resource, 1});
    }
    if (source.node.sip != target.node.sip) {
        shares_.push_back({links_[sips_[source.node.sip].out].resource, 1});
        shares_.push_back({links_[sips_[target.node.sip].in].resource, 1});
    }
    units(pe.sram, copy.sram_banks, settings_.sram_banks);
    set_phase(index, Phase::FLOW, Cause::DMA);
    network_.start(now_, part.bytes, settings_.engine_bandwidth, Cause::DMA, shares_.data(),
                   static_cast<uint32_t>(shares_.size()), index);
}

void Simulator::part_ended(uint32_t index) {
    Copy &copy = copies_[index];
    const Pe &pe = *pes_[copy.pe];
    const Part &part = copy.parts[copy.part];
    const Pe &owner = *pes_[part.owner];
    const bool load = copy.load;
    const Pe &source = load ? owner : pe;
    const Pe &target = load ? pe : owner;
    const auto passed = [&](uint32_t link) {
        links_[link].bytes += part.bytes;
        if (traces(TRANSFERS)) {
            trace_->add(links_[link].track, load ? load_name_ : store_name_, copy.phase_begin, now_,
                        part.bytes);
        }
    };
    (part.sram ? sram_bytes_ : hbm_bytes_) += part.bytes;
    sram_bytes_ += part.bytes;
    if (traces(TRANSFERS)) {
        trace_->add(pe.engine_tracks[copy.engine], transfer_name_, copy.phase_begin, now_,
                    part.bytes);
        if (!part.sram) {
            trace_->add(cubes_[owner.cube].hbm_track, load ? load_name_ : store_name_,
                        copy.phase_begin, now_, part.bytes);
        }
    }
    if (source.cube != target.cube) {
        passed(cubes_[source.cube].noc_out);
        passed(cubes_[target.cube].noc_in);
    }
    if (source.node.sip != target.node.sip) {
        passed(sips_[source.node.sip].out);
        passed(sips_[target.node.sip].in);
    }
    copy.part++;
    begin_part(index);
}

void Simulator::finish_copy(uint32_t index) {
    Copy &copy = copies_[index];
    Pe &pe = *pes_[copy.pe];
    if (traces(TRANSFERS)) {
        trace_->add(pe.engine_tracks[copy.engine], copy.load ? load_name_ : store_name_, copy.begin,
                    now_, copy.rows.rows * copy.rows.bytes);
    }
    const uint32_t engine = copy.engine;
    (copy.older == NONE ? pe.oldest : copies_[copy.older].newer) = copy.newer;
    (copy.newer == NONE ? pe.newest : copies_[copy.newer].older) = copy.older;
    copies_.release(index);
    pe.engines[engine] = NONE;
    if (pe.queue_first != NONE) {
        const uint32_t next = pe.queue_first;
        pe.queue_first = copies_[next].next;
        if (pe.queue_first == NONE) {
            pe.queue_last = NONE;
        }
        take_engine(pe, next, engine);
    }
    if (pe.doing == Doing::DRAINING || (pe.doing == Doing::WAITING && pe.awaited == index)) {
        advance(pe);
    } else {
        refresh_waiting(pe);
    }
}

} // namespace kernloom
