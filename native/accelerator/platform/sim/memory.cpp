#include "memory.hpp"

#include <cstring>

namespace kernloom {

namespace {

constexpr uint64_t MOST_CHUNKS = 1 << 16;

// The part of a range that lies in its first chunk.
uint64_t within(uint64_t offset, uint64_t chunk_bytes, uint64_t bytes) {
    const uint64_t left = chunk_bytes - offset;
    return bytes < left ? bytes : left;
}

} // namespace

Memory::~Memory() {
    Chunk *table = table_.load();
    if (table == nullptr) {
        return;
    }
    for (uint64_t i = 0; i < chunks_; i++) {
        std::free(table[i].load());
    }
    std::free(static_cast<void *>(table));
}

void Memory::resize(uint64_t bytes) {
    bytes_ = bytes;
    while (shift_ < 48 && (bytes >> shift_) >= MOST_CHUNKS) {
        shift_++;
    }
    chunks_ = (bytes >> shift_) + 1;
}

// Pages of calloc come into being when they are touched, so a large table costs nothing.
Memory::Chunk *Memory::table() {
    static_assert(sizeof(Chunk) == sizeof(void *));
    Chunk *known = table_.load(std::memory_order_acquire);
    if (known != nullptr) {
        return known;
    }
    Chunk *created = static_cast<Chunk *>(std::calloc(chunks_, sizeof(Chunk)));
    if (created != nullptr && !table_.compare_exchange_strong(known, created)) {
        std::free(static_cast<void *>(created));
        return known;
    }
    return created;
}

unsigned char *Memory::chunk(uint64_t index) {
    Chunk *chunks = table();
    if (chunks == nullptr) {
        return nullptr;
    }
    unsigned char *known = chunks[index].load(std::memory_order_acquire);
    if (known != nullptr) {
        return known;
    }
    auto *created = static_cast<unsigned char *>(std::calloc(1, uint64_t{1} << shift_));
    if (created != nullptr && !chunks[index].compare_exchange_strong(known, created)) {
        std::free(created);
        return known;
    }
    return created;
}

template <typename Touch> bool Memory::each_chunk(uint64_t address, uint64_t bytes, Touch touch) {
    if (!holds(address, bytes)) {
        return false;
    }
    const uint64_t chunk_bytes = uint64_t{1} << shift_;
    while (bytes > 0) {
        const uint64_t offset = address & (chunk_bytes - 1);
        const uint64_t part = within(offset, chunk_bytes, bytes);
        unsigned char *base = chunk(address >> shift_);
        if (base == nullptr) {
            return false;
        }
        touch(base + offset, part);
        address += part;
        bytes -= part;
    }
    return true;
}

bool Memory::write(uint64_t address, const void *from, uint64_t bytes) {
    auto *source = static_cast<const unsigned char *>(from);
    return each_chunk(address, bytes, [&](unsigned char *to, uint64_t part) {
        std::memcpy(to, source, part);
        source += part;
    });
}

bool Memory::fill(uint64_t address, int value, uint64_t bytes) {
    return each_chunk(address, bytes,
                      [&](unsigned char *to, uint64_t part) { std::memset(to, value, part); });
}

bool Memory::read(uint64_t address, void *to, uint64_t bytes) const {
    if (!holds(address, bytes)) {
        return false;
    }
    auto *target = static_cast<unsigned char *>(to);
    const Chunk *table = table_.load(std::memory_order_acquire);
    const uint64_t chunk_bytes = uint64_t{1} << shift_;
    while (bytes > 0) {
        const uint64_t offset = address & (chunk_bytes - 1);
        const uint64_t part = within(offset, chunk_bytes, bytes);
        const unsigned char *base =
            table == nullptr ? nullptr : table[address >> shift_].load(std::memory_order_acquire);
        if (base == nullptr) {
            std::memset(target, 0, part);
        } else {
            std::memcpy(target, base + offset, part);
        }
        target += part;
        address += part;
        bytes -= part;
    }
    return true;
}

} // namespace kernloom
