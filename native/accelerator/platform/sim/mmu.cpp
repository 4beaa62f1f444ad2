#include "mmu.hpp"

#include <algorithm>

namespace kernloom {

namespace {

uint64_t last_byte(const kl_map_entry &entry) {
    return entry.virtual_address + (entry.bytes - 1);
}

bool sensible(const kl_map_entry &entry) {
    return entry.bytes > 0 && entry.virtual_address >= KL_VIRTUAL_BASE &&
           last_byte(entry) >= entry.virtual_address && last_byte(entry) < KL_SRAM_BASE;
}

bool by_address(const kl_map_entry &a, const kl_map_entry &b) {
    return a.virtual_address < b.virtual_address;
}

} // namespace

bool Mmu::map(const kl_map_entry *entries, size_t count) {
    if (!std::all_of(entries, entries + count, sensible)) {
        return false;
    }
    std::vector<kl_map_entry> merged = entries_;
    merged.insert(merged.end(), entries, entries + count);
    const auto middle = merged.begin() + static_cast<ptrdiff_t>(entries_.size());
    std::sort(middle, merged.end(), by_address);
    std::inplace_merge(merged.begin(), middle, merged.end(), by_address);
    for (size_t i = 1; i < merged.size(); i++) {
        if (last_byte(merged[i - 1]) >= merged[i].virtual_address) {
            return false;
        }
    }
    entries_.swap(merged);
    return true;
}

bool Mmu::unmap(uint64_t address, uint64_t bytes) {
    if (bytes == 0) {
        return false;
    }
    const uint64_t end = bytes - 1 <= UINT64_MAX - address ? address + (bytes - 1) : UINT64_MAX;
    std::vector<kl_map_entry> kept;
    kept.reserve(entries_.size() + 1);
    bool removed = false;
    for (const kl_map_entry &entry : entries_) {
        const uint64_t last = last_byte(entry);
        if (last < address || entry.virtual_address > end) {
            kept.push_back(entry);
            continue;
        }
        removed = true;
        if (entry.virtual_address < address) {
            kl_map_entry front = entry;
            front.bytes = address - entry.virtual_address;
            kept.push_back(front);
        }
        if (last > end) {
            kl_map_entry back = entry;
            const uint64_t skipped = end + 1 - entry.virtual_address;
            back.virtual_address += skipped;
            back.physical_address += skipped;
            back.bytes -= skipped;
            kept.push_back(back);
        }
    }
    entries_.swap(kept);
    return removed;
}

const kl_map_entry *Mmu::find(uint64_t address) const {
    const auto after = std::upper_bound(
        entries_.begin(), entries_.end(), address,
        [](uint64_t value, const kl_map_entry &entry) { return value < entry.virtual_address; });
    if (after == entries_.begin()) {
        return nullptr;
    }
    const kl_map_entry &entry = *(after - 1);
    return address <= last_byte(entry) ? &entry : nullptr;
}

void Tlb::resize(uint32_t entries) {
    pages_.assign(entries, 0);
    used_.assign(entries, 0);
}

bool Tlb::touch(uint64_t page) {
    clock_++;
    uint32_t &hint = hints_[page % HINTS];
    if (pages_[hint] == page && used_[hint] != 0) {
        used_[hint] = clock_;
        return true;
    }
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < pages_.size(); i++) {
        if (pages_[i] == page && used_[i] != 0) {
            used_[i] = clock_;
            hint = i;
            return true;
        }
        if (used_[i] < used_[oldest]) {
            oldest = i;
        }
    }
    pages_[oldest] = page;
    used_[oldest] = clock_;
    hint = oldest;
    return false;
}

void Tlb::forget(uint64_t first_page, uint64_t last_page) {
    for (uint32_t i = 0; i < pages_.size(); i++) {
        if (pages_[i] >= first_page && pages_[i] <= last_page) {
            used_[i] = 0;
        }
    }
}

} // namespace kernloom
