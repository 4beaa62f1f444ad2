// The MMU of a PE: its mappings, and the TLB that decides what a translation costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernloom/platform.h"

namespace kernloom {

class Mmu {
  public:
    // False, and nothing is mapped, if an entry is empty, not virtual, or overlaps.
    bool map(const kl_map_entry *entries, size_t count);

    // Removes what is mapped of a range; false if nothing is.
    bool unmap(uint64_t address, uint64_t bytes);

    // The mapping that covers an address, or null.
    const kl_map_entry *find(uint64_t address) const;

  private:
    std::vector<kl_map_entry> entries_; // by virtual address, without overlap
};

// Which pages were translated lately: the least recently used one makes room.
class Tlb {
  public:
    void resize(uint32_t entries);

    // True if the page was known. It is known now.
    bool touch(uint64_t page);

    void forget(uint64_t first_page, uint64_t last_page);

  private:
    static constexpr uint32_t HINTS = 16;

    std::vector<uint64_t> pages_;
    std::vector<uint64_t> used_; // when; 0: the entry is empty
    uint32_t hints_[HINTS] = {}; // where a page was found last time
    uint64_t clock_ = 0;
};

} // namespace kernloom
