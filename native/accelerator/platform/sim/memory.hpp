// Bytes of one memory, kept only where something was written; the rest reads as zero.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace kernloom {

// Reading and writing is safe on several threads as long as they touch different bytes.
class Memory {
  public:
    Memory() = default;
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory();

    void resize(uint64_t bytes); // once, before any access

    uint64_t bytes() const {
        return bytes_;
    }

    bool holds(uint64_t address, uint64_t bytes) const {
        return address <= bytes_ && bytes <= bytes_ - address;
    }

    // False if the range is not inside, or the machine has no memory left.
    bool write(uint64_t address, const void *from, uint64_t bytes);
    bool read(uint64_t address, void *to, uint64_t bytes) const;
    bool fill(uint64_t address, int value, uint64_t bytes);

  private:
    using Chunk = std::atomic<unsigned char *>;

    Chunk *table();
    unsigned char *chunk(uint64_t index);
    template <typename Touch> bool each_chunk(uint64_t address, uint64_t bytes, Touch touch);

    std::atomic<Chunk *> table_{nullptr};
    uint64_t bytes_ = 0;
    uint64_t chunks_ = 0;
    unsigned shift_ = 16; // bytes of a chunk, as a power of two
};

} // namespace kernloom
