// Memory as programs and kernels access it, without any cost.
#include "simulator.hpp"

namespace kernloom {

// The memory of a PE that a physical address names, and the offset in it.
Memory *Simulator::memory(kl_node node, uint64_t &address) {
    if (node.kind != KL_NODE_PE || !known(node)) {
        return nullptr;
    }
    Pe &pe = *pes_[pe_number(node)];
    if (address >= KL_SRAM_BASE) {
        address -= KL_SRAM_BASE;
        return &pe.sram_bytes;
    }
    return &pe.hbm;
}

bool Simulator::map(kl_node node, const kl_map_entry *entries, size_t count) {
    return node.kind == KL_NODE_PE && known(node) && pes_[pe_number(node)]->mmu.map(entries, count);
}

bool Simulator::unmap(kl_node node, uint64_t address, uint64_t bytes) {
    if (node.kind != KL_NODE_PE || !known(node)) {
        return false;
    }
    Pe &pe = *pes_[pe_number(node)];
    if (!pe.mmu.unmap(address, bytes)) {
        return false;
    }
    const uint64_t page = settings_.arch.page_bytes;
    const uint64_t last = bytes - 1 <= UINT64_MAX - address ? address + (bytes - 1) : UINT64_MAX;
    pe.tlb.forget(address / page, last / page);
    return true;
}

// Calls touch(memory, offset, bytes, row, offset in the row) for each piece of each row.
template <typename Touch>
bool Simulator::access(Pe &pe, uint64_t address, const kl_rows &rows, kl_fault &fault,
                       Touch touch) {
    if (rows.bytes == 0) { // however many rows there are
        return true;
    }
    for (uint64_t row = 0; row < rows.rows; row++) {
        const uint64_t base = address + row * rows.device_stride;
        uint64_t done = 0;
        while (done < rows.bytes) {
            const uint64_t at = base + done;
            uint64_t bytes = rows.bytes - done;
            uint64_t physical = at;
            kl_node owner = pe.node;
            if (at >= KL_VIRTUAL_BASE && at < KL_SRAM_BASE) {
                const kl_map_entry *entry = pe.mmu.find(at);
                if (entry == nullptr) {
                    fault = {at, rows.bytes, KL_FAULT_UNMAPPED};
                    return false;
                }
                const uint64_t offset = at - entry->virtual_address;
                bytes = bytes < entry->bytes - offset ? bytes : entry->bytes - offset;
                physical = entry->physical_address + offset;
                owner = {KL_NODE_PE, entry->sip, entry->cube, entry->pe};
            }
            Memory *target = memory(owner, physical);
            if (target == nullptr || physical >= target->bytes()) {
                fault = {at, rows.bytes, KL_FAULT_PHYSICAL};
                return false;
            }
            const uint64_t inside = target->bytes() - physical;
            const uint64_t part = bytes < inside ? bytes : inside;
            if (!touch(*target, physical, part, row, done)) {
                fault = {at, rows.bytes, KL_FAULT_PHYSICAL};
                return false;
            }
            done += part;
            if (part < bytes) {
                fault = {base + done, rows.bytes, KL_FAULT_PHYSICAL};
                return false;
            }
        }
    }
    return true;
}

bool Simulator::load(kl_node node, void *to, uint64_t from, const kl_rows &rows, kl_fault &fault) {
    if (node.kind != KL_NODE_PE || !known(node)) {
        fault = {from, rows.bytes, KL_FAULT_PHYSICAL};
        return false;
    }
    auto *target = static_cast<unsigned char *>(to);
    return access(*pes_[pe_number(node)], from, rows, fault,
                  [&](Memory &memory, uint64_t at, uint64_t bytes, uint64_t row, uint64_t done) {
                      return memory.read(at, target + row * rows.sram_stride + done, bytes);
                  });
}

bool Simulator::store(kl_node node, uint64_t to, const void *from, const kl_rows &rows,
                      kl_fault &fault) {
    if (node.kind != KL_NODE_PE || !known(node)) {
        fault = {to, rows.bytes, KL_FAULT_PHYSICAL};
        return false;
    }
    const auto *source = static_cast<const unsigned char *>(from);
    return access(*pes_[pe_number(node)], to, rows, fault,
                  [&](Memory &memory, uint64_t at, uint64_t bytes, uint64_t row, uint64_t done) {
                      return memory.write(at, source + row * rows.sram_stride + done, bytes);
                  });
}

} // namespace kernloom
