// Requests of the host: mappings and memory.
#include <algorithm>

#include "core.hpp"

namespace kernloom::core {

namespace {

constexpr std::uint64_t FILL_BYTES = 1 << 16;

Outcome cut_short(const char *what) {
    return Outcome::failure(KL_STATUS_INVALID, text_of("%s is cut short", what));
}

const HostTransfer *transfer_at(std::uint64_t address) {
    return reinterpret_cast<const HostTransfer *>(static_cast<std::uintptr_t>(address));
}

} // namespace

Outcome Core::fault(const kl_fault &fault, const char *what) const {
    return Outcome::failure(KL_STATUS_UNKNOWN_ADDRESS,
                            text_of("%s cannot %s 0x%llx: %s", name_of(node_).c_str(), what,
                                    (unsigned long long)fault.address,
                                    fault.reason == KL_FAULT_PHYSICAL ? "it is mapped to no memory"
                                                                      : "it is not mapped"),
                            fault.address);
}

Outcome Core::outside(std::uint64_t address, std::uint64_t bytes) const {
    return Outcome::failure(KL_STATUS_UNKNOWN_ADDRESS,
                            text_of("%s has no %llu bytes at physical address 0x%llx: its memory "
                                    "has %llu (arch.hbm.bytes)",
                                    name_of(node_).c_str(), (unsigned long long)bytes,
                                    (unsigned long long)address,
                                    (unsigned long long)platform_.arch->hbm_bytes),
                            address);
}

Outcome Core::map(Reader &reader) {
    kl_mmu_map message;
    std::vector<kl_mapping> mappings;
    if (!reader.take(message) || !reader.take_all(mappings, message.mappings_count))
        return cut_short("MmuMap");
    std::vector<kl_map_entry> entries;
    for (const kl_mapping &one : mappings) {
        kl_map_entry entry{};
        entry.virtual_address = one.virtual_address;
        entry.physical_address = one.physical_address;
        entry.bytes = one.bytes;
        entry.sip = one.sip;
        entry.cube = one.cube;
        entry.pe = one.pe;
        entries.push_back(entry);
    }
    if (platform_.mmu_map(platform_.self, node_, entries.data(), entries.size()))
        return {};
    const std::uint64_t first = entries.empty() ? 0 : entries[0].virtual_address;
    return Outcome::failure(KL_STATUS_INVALID,
                            text_of("%s refuses %zu mappings from 0x%llx on: one overlaps another "
                                    "or leads outside a PE's memory",
                                    name_of(node_).c_str(), entries.size(),
                                    (unsigned long long)first),
                            first);
}

Outcome Core::unmap(Reader &reader) {
    kl_mmu_unmap message;
    if (!reader.take(message))
        return cut_short("MmuUnmap");
    const std::uint64_t address = message.virtual_address, bytes = message.bytes;
    if (platform_.mmu_unmap(platform_.self, node_, address, bytes))
        return {};
    return Outcome::failure(KL_STATUS_UNKNOWN_ADDRESS,
                            text_of("%s has no mappings of just the %llu bytes at 0x%llx",
                                    name_of(node_).c_str(), (unsigned long long)bytes,
                                    (unsigned long long)address),
                            address);
}

Outcome Core::store(std::uint64_t address, const unsigned char *from, std::uint64_t bytes) {
    if (address < KL_VIRTUAL_BASE)
        return platform_.memory_write(platform_.self, node_, address, from, bytes)
                   ? Outcome{}
                   : outside(address, bytes);
    const kl_rows rows = {1, bytes, bytes, bytes};
    kl_fault found{};
    if (platform_.store(platform_.self, node_, address, from, &rows, &found))
        return {};
    return fault(found, "write to");
}

Outcome Core::write(Reader &reader) {
    kl_memory_write message;
    if (!reader.take(message))
        return cut_short("MemoryWrite");
    const HostTransfer *transfer = transfer_at(message.offset);
    if (!transfer->data)
        return Outcome::failure(KL_STATUS_NO_ANSWER, "the host has given up");
    return store(message.address, transfer->data, message.bytes);
}

Outcome Core::read(Reader &reader, std::uint64_t &bulk) {
    kl_memory_read message;
    if (!reader.take(message))
        return cut_short("MemoryRead");
    const HostTransfer *transfer = transfer_at(message.offset);
    const std::uint64_t address = message.address, bytes = message.bytes;
    if (!transfer->data)
        return Outcome::failure(KL_STATUS_NO_ANSWER, "the host has given up");
    bulk = bytes;
    if (address < KL_VIRTUAL_BASE)
        return platform_.memory_read(platform_.self, node_, address, transfer->data, bytes)
                   ? Outcome{}
                   : outside(address, bytes);
    const kl_rows rows = {1, bytes, bytes, bytes};
    kl_fault found{};
    if (platform_.load(platform_.self, node_, transfer->data, address, &rows, &found))
        return {};
    return fault(found, "read from");
}

Outcome Core::fill(Reader &reader) {
    kl_memory_fill message;
    if (!reader.take(message))
        return cut_short("MemoryFill");
    const std::uint64_t address = message.address, bytes = message.bytes;
    const int value = static_cast<int>(message.value & 0xFF);
    if (address < KL_VIRTUAL_BASE)
        return platform_.memory_fill(platform_.self, node_, address, value, bytes)
                   ? Outcome{}
                   : outside(address, bytes);
    const std::vector<unsigned char> content(std::min(bytes, FILL_BYTES),
                                             static_cast<unsigned char>(value));
    for (std::uint64_t at = 0; at < bytes; at += FILL_BYTES) {
        const Outcome done = store(address + at, content.data(), std::min(bytes - at, FILL_BYTES));
        if (!done.ok())
            return done;
    }
    return {};
}

} // namespace kernloom::core
