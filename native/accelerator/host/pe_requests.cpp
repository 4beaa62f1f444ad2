// Requests to PEs: each addressee answers for itself.
#include <algorithm>

#include "front_end.hpp"

namespace kernloom::host {

namespace {

std::vector<Reply> for_all(Outcome outcome) {
    return {{std::move(outcome), {}, 0}};
}

// What each PE has answered, and how long that took.
std::vector<Reply> replies_of(const std::vector<Answer> &answers, std::uint64_t begin_ps) {
    std::vector<Reply> replies;
    for (const Answer &answer : answers)
        replies.push_back({answer.outcome, {}, answer.arrived ? answer.at_ps - begin_ps : 0});
    return replies;
}

} // namespace

std::vector<Reply> FrontEnd::place_each(Reader &reader, const Addressed &addressed) {
    std::vector<Answer> answers;
    const Outcome placed = place(reader, addressed, answers);
    std::vector<Reply> replies;
    bool told = false;
    for (const kl_node part : addressed.parts) {
        Outcome outcome = placed;
        for (const Answer &answer : answers)
            if (same_node(answer.from, part) && answer.outcome.ok())
                outcome = {KL_STATUS_OK, placed.value, {}};
        told = told || !outcome.ok();
        replies.push_back({std::move(outcome), {}, 0});
    }
    // A PE that is not among the addressees may be the one that failed.
    if (!placed.ok() && !told)
        replies.front().outcome = placed;
    return replies;
}

std::vector<Reply> FrontEnd::access_each(std::uint16_t kind, Reader &reader,
                                         const Addressed &addressed) {
    const bool fills = kind == KL_KIND_MEMORY_FILL;
    kl_memory_fill fill{};
    kl_memory_write move{};
    const bool whole = fills ? reader.take(fill) : reader.take(move);
    if (!whole || reader.left())
        return for_all(Outcome::invalid(text_of("%s has the wrong size", name_of_kind(kind))));
    const std::uint64_t address = fills ? fill.address : move.address;
    const std::uint64_t bytes = fills ? fill.bytes : move.bytes;
    if (fills && fill.value > 0xFF)
        return for_all(Outcome::invalid(text_of("%u is not a byte", fill.value)));
    if (kind == KL_KIND_MEMORY_READ && addressed.parts.size() > 1)
        return for_all(Outcome::invalid(
            text_of("a read is from one PE, not from %zu", addressed.parts.size())));
    const Outcome fits = fills ? Outcome{} : check_window(move.offset, bytes);
    if (!fits.ok())
        return for_all(fits);
    if (address > KL_SRAM_BASE || bytes > KL_SRAM_BASE - address)
        return for_all(
            Outcome::failure(KL_STATUS_UNKNOWN_ADDRESS,
                             text_of("%llu bytes at 0x%llx are beyond the last address",
                                     (unsigned long long)bytes, (unsigned long long)address)));
    const std::uint64_t begin = exchange_.now();
    exchange_.begin();
    for (const kl_node pe : addressed.parts) {
        if (!fills) {
            exchange_.send_transfer(pe, kind, address, window_.data + move.offset, bytes, bytes);
            continue;
        }
        const std::uint64_t request = exchange_.next_request();
        Packet packet(kind, request);
        packet.add(fill);
        exchange_.send(pe, request, kind, packet);
    }
    std::vector<Reply> replies = replies_of(exchange_.wait(), begin);
    for (Reply &reply : replies)
        if (!reply.outcome.ok())
            add_nearest(reply.outcome, reply.outcome.value);
    return replies;
}

// Says which tensor an address that cannot be accessed is in or next to.
void FrontEnd::add_nearest(Outcome &outcome, std::uint64_t address) const {
    if (address >= KL_VIRTUAL_BASE)
        outcome.detail += "; it is " + tensors_.nearest(address);
}

Outcome FrontEnd::check_mappings(const std::vector<kl_mapping> &mappings) const {
    const kl_arch &arch = *platform_.arch;
    for (const kl_mapping &mapping : mappings) {
        const std::uint64_t address = mapping.virtual_address, bytes = mapping.bytes;
        const std::uint64_t physical = mapping.physical_address;
        const kl_node owner = {KL_NODE_PE, mapping.sip, mapping.cube, mapping.pe};
        if (!bytes)
            return Outcome::invalid(
                text_of("the mapping of 0x%llx has no bytes", (unsigned long long)address));
        if (address < KL_VIRTUAL_BASE || address >= KL_SRAM_BASE || bytes > KL_SRAM_BASE - address)
            return Outcome::invalid(
                text_of("0x%llx is no virtual address that can be mapped: they are from "
                        "0x%llx to 0x%llx",
                        (unsigned long long)address, (unsigned long long)KL_VIRTUAL_BASE,
                        (unsigned long long)KL_SRAM_BASE));
        if (!device_.exists(owner))
            return Outcome::failure(
                KL_STATUS_UNKNOWN_ADDRESS,
                text_of("the mapping of 0x%llx leads to %s, which does not exist "
                        "(arch.topology)",
                        (unsigned long long)address, name_of(owner).c_str()));
        if (physical > arch.hbm_bytes || bytes > arch.hbm_bytes - physical)
            return Outcome::failure(
                KL_STATUS_UNKNOWN_ADDRESS,
                text_of("the mapping of 0x%llx leads to %llu bytes at 0x%llx, and %s "
                        "has %llu (arch.hbm.bytes)",
                        (unsigned long long)address, (unsigned long long)bytes,
                        (unsigned long long)physical, name_of(owner).c_str(),
                        (unsigned long long)arch.hbm_bytes));
        if (const Tensor *freed = tensors_.freed_in(address, bytes))
            return Outcome::failure(
                KL_STATUS_USE_AFTER_FREE,
                text_of("0x%llx is an address of tensor '%.200s', which is freed",
                        (unsigned long long)address, freed->label.c_str()));
    }
    return {};
}

std::vector<Reply> FrontEnd::map_each(Reader &reader, const Addressed &addressed) {
    kl_mmu_map message;
    std::vector<kl_mapping> mappings;
    if (!reader.take(message) || !reader.take_all(mappings, message.mappings_count) ||
        reader.left())
        return for_all(Outcome::invalid("MmuMap has the wrong size"));
    const Outcome sound = check_mappings(mappings);
    if (!sound.ok())
        return for_all(sound);
    const std::uint64_t begin = exchange_.now();
    return replies_of(device_.map(addressed.parts, mappings), begin);
}

std::vector<Reply> FrontEnd::unmap_each(Reader &reader, const Addressed &addressed) {
    kl_mmu_unmap message;
    if (!reader.take(message) || reader.left())
        return for_all(Outcome::invalid("MmuUnmap has the wrong size"));
    const std::uint64_t begin = exchange_.now();
    return replies_of(device_.unmap(addressed.parts, message.virtual_address, message.bytes),
                      begin);
}

std::vector<Reply> FrontEnd::probe_each(Reader &reader, const Addressed &addressed) {
    kl_pe_dma message;
    if (!reader.take(message) || reader.left())
        return for_all(Outcome::invalid("PeDma has the wrong size"));
    for (const std::uint64_t address :
         {std::uint64_t{message.source}, std::uint64_t{message.destination}})
        if (address < KL_VIRTUAL_BASE)
            return for_all(
                Outcome::failure(KL_STATUS_UNKNOWN_ADDRESS,
                                 text_of("0x%llx is no virtual address, and a DMA engine takes "
                                         "no other",
                                         (unsigned long long)address)));
    // A copy of more than a memory has would be recorded for a long time before it fails.
    if (message.bytes > platform_.arch->hbm_bytes * device_.all().size())
        return for_all(Outcome::invalid(text_of("no memory has %llu bytes (arch.hbm.bytes)",
                                                (unsigned long long)message.bytes)));
    const std::uint64_t begin = exchange_.now();
    exchange_.begin();
    for (const kl_node pe : addressed.parts) {
        const std::uint64_t request = exchange_.next_request();
        Packet packet(KL_KIND_PE_DMA, request);
        packet.add(message);
        exchange_.send(pe, request, KL_KIND_PE_DMA, packet);
    }
    std::vector<Reply> replies = replies_of(exchange_.wait(), begin);
    for (Reply &reply : replies)
        if (reply.outcome.status == KL_STATUS_OUT_OF_BOUNDS) {
            // No kernel is to blame: it is the request that has a wrong address.
            reply.outcome.status = KL_STATUS_UNKNOWN_ADDRESS;
            add_nearest(reply.outcome, reply.outcome.value);
        }
    return replies;
}

} // namespace kernloom::host
