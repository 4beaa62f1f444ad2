// Allocator of address ranges. Neighbouring free ranges are always one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace kernloom::host {

class FreeList {
  public:
    // The range [base, base + bytes) is free.
    FreeList(std::uint64_t base, std::uint64_t bytes);

    // The lowest range that fits.
    std::optional<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t alignment);

    // The next range that fits, from the end of the last one on: what was freed is used again as
    // late as possible.
    std::optional<std::uint64_t> allocate_next(std::uint64_t bytes, std::uint64_t alignment);

    // Frees an allocated range, or a part of one; false if a byte of it is free already or outside.
    bool release(std::uint64_t start, std::uint64_t bytes);

    std::uint64_t free_bytes() const {
        return free_bytes_;
    }
    // Bytes of the largest free range.
    std::uint64_t largest() const;
    // Number of free ranges.
    std::size_t pieces() const {
        return free_.size();
    }

  private:
    using Ranges = std::map<std::uint64_t, std::uint64_t>; // start -> end

    std::optional<std::uint64_t> take(Ranges::iterator range, std::uint64_t from,
                                      std::uint64_t bytes, std::uint64_t alignment);

    std::uint64_t base_;
    std::uint64_t end_;
    std::uint64_t next_;
    std::uint64_t free_bytes_;
    Ranges free_;
};

} // namespace kernloom::host
