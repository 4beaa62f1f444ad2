#include "tensors.hpp"

#include <algorithm>

namespace kernloom::host {

namespace {

constexpr std::uint64_t ADDRESSES = KL_SRAM_BASE - KL_VIRTUAL_BASE;
constexpr std::uint64_t ALIGNMENT = 4096; // of a tensor in a PE's memory
constexpr std::uint64_t LINE = 64;        // least alignment of shards of equal size
constexpr std::uint64_t MOST_SHARDS = 1 << 16;
constexpr std::uint64_t NEAR = 1 << 20; // an address is near a tensor: so far, or the tensor's size

std::uint64_t rounded(std::uint64_t value, std::uint64_t to) {
    return (value + to - 1) / to * to;
}

std::string titled(const Tensor &tensor) {
    return text_of("'%.200s' of %llu bytes", tensor.label.c_str(),
                   (unsigned long long)tensor.bytes);
}

} // namespace

std::vector<kl_mapping> Tensor::mappings(kl_node pe) const {
    std::vector<kl_mapping> found;
    for (const Segment &segment : segments) {
        if (policy == KL_POLICY_REPLICATE && !same_node(segment.pe, pe))
            continue;
        kl_mapping mapping{};
        mapping.virtual_address = address + segment.offset;
        mapping.physical_address = segment.physical;
        mapping.bytes = segment.bytes;
        mapping.sip = segment.pe.sip;
        mapping.cube = segment.pe.cube;
        mapping.pe = segment.pe.pe;
        found.push_back(mapping);
    }
    return found;
}

Tensors::Tensors(const kl_arch &arch, std::uint64_t limit)
    : arch_(arch), limit_(limit), page_(std::max<std::uint64_t>(arch.page_bytes, ALIGNMENT)),
      addresses_(KL_VIRTUAL_BASE, ADDRESSES),
      memories_(std::size_t{arch.sips} * arch.cubes * arch.pes, FreeList(0, arch.hbm_bytes)) {
}

std::size_t Tensors::index(kl_node pe) const {
    return (std::size_t{pe.sip} * arch_.cubes + pe.cube) * arch_.pes + pe.pe;
}

// Addresses of a tensor: whole pages, and one that stays unmapped, so that no access beyond it
// reaches the next.
std::uint64_t Tensors::span(std::uint64_t bytes) const {
    return rounded(bytes, page_) + page_;
}

bool Tensors::reserve_on(Tensor &tensor, kl_node pe, std::uint64_t bytes, bool code,
                         std::uint64_t &physical, Outcome &problem) {
    FreeList &memory = memories_[index(pe)];
    const auto at =
        code ? memory.allocate_last(bytes, ALIGNMENT) : memory.allocate(bytes, ALIGNMENT);
    if (!at) {
        problem = Outcome::failure(
            KL_STATUS_OUT_OF_MEMORY,
            text_of("no memory for tensor %s: it needs %llu bytes on %s, which has %llu "
                    "(arch.hbm.bytes), %llu of them free and %llu in one piece",
                    titled(tensor).c_str(), (unsigned long long)bytes, name_of(pe).c_str(),
                    (unsigned long long)arch_.hbm_bytes, (unsigned long long)memory.free_bytes(),
                    (unsigned long long)memory.largest()));
        return false;
    }
    physical = *at;
    used_ += bytes;
    taking_.push_back({pe, *at, bytes});
    return true;
}

bool Tensors::shard(Tensor &tensor, const Placement &placement, Outcome &problem) {
    const std::uint64_t bytes = placement.bytes, count = placement.pes.size();
    const std::uint64_t unit =
        placement.unit ? placement.unit : rounded(bytes / count + (bytes % count != 0), LINE);
    const std::uint64_t units = bytes / unit + (bytes % unit != 0);
    if (units > MOST_SHARDS) {
        problem = Outcome::failure(
            KL_STATUS_INVALID,
            text_of("tensor %s would have %llu shards of %llu bytes, and may have %llu",
                    titled(tensor).c_str(), (unsigned long long)units, (unsigned long long)unit,
                    (unsigned long long)MOST_SHARDS));
        return false;
    }
    // The units of a PE are side by side in its memory.
    std::vector<std::uint64_t> start(count), taken(count);
    for (std::uint64_t i = 0; i < units; i++)
        taken[i % count] += std::min(unit, bytes - i * unit);
    for (std::uint64_t i = 0; i < count && taken[i]; i++)
        if (!reserve_on(tensor, placement.pes[i], taken[i], placement.code, start[i], problem))
            return false;
    for (std::uint64_t i = 0; i < units; i++) {
        const std::uint64_t owner = i % count, part = std::min(unit, bytes - i * unit);
        tensor.segments.push_back({placement.pes[owner], i * unit, start[owner], part});
        start[owner] += part;
    }
    return true;
}

bool Tensors::reserve(Tensor &tensor, const Placement &placement, Outcome &problem) {
    if (placement.policy == KL_POLICY_SHARD)
        return shard(tensor, placement, problem);
    const std::size_t copies = placement.policy == KL_POLICY_OWNER ? 1 : placement.pes.size();
    for (std::size_t i = 0; i < copies; i++) {
        std::uint64_t physical;
        if (!reserve_on(tensor, placement.pes[i], placement.bytes, placement.code, physical,
                        problem))
            return false;
        tensor.segments.push_back({placement.pes[i], 0, physical, placement.bytes});
    }
    return true;
}

Tensor *Tensors::place(const Placement &placement, Outcome &problem) {
    Tensor tensor;
    tensor.bytes = placement.bytes;
    tensor.label = placement.label;
    tensor.policy = placement.policy;
    if (!placement.bytes || placement.pes.empty() || placement.policy > KL_POLICY_SHARD) {
        problem = Outcome::failure(
            KL_STATUS_INVALID,
            placement.policy > KL_POLICY_SHARD
                ? text_of("%u is no policy for placing a tensor", placement.policy)
                : text_of("tensor '%.200s' would have no %s", placement.label.c_str(),
                          placement.bytes ? "PE" : "bytes"));
        return nullptr;
    }
    const std::uint64_t copies = placement.policy == KL_POLICY_REPLICATE ? placement.pes.size() : 1;
    // First, so that a tensor larger than any memory is named with that memory.
    if (placement.bytes <= arch_.hbm_bytes &&
        placement.bytes > (limit_ - std::min(limit_, used_)) / copies) {
        problem = Outcome::failure(
            KL_STATUS_OUT_OF_MEMORY,
            text_of("no memory for tensor %s: %llu copies on top of %llu bytes are more than the "
                    "limit of %llu (memory_limit)",
                    titled(tensor).c_str(), (unsigned long long)copies, (unsigned long long)used_,
                    (unsigned long long)limit_));
        return nullptr;
    }
    taking_.clear();
    if (placement.bytes > ADDRESSES / 2 || !reserve(tensor, placement, problem)) {
        for (const Taken &one : taking_) {
            memories_[index(one.pe)].release(one.physical, one.bytes);
            used_ -= one.bytes;
        }
        if (placement.bytes > ADDRESSES / 2)
            problem = Outcome::failure(
                KL_STATUS_OUT_OF_MEMORY,
                text_of("no memory for tensor %s: a PE has %llu bytes (arch.hbm.bytes)",
                        titled(tensor).c_str(), (unsigned long long)arch_.hbm_bytes));
        return nullptr;
    }
    const auto address = placement.code ? addresses_.allocate_last(span(placement.bytes), page_)
                                        : addresses_.allocate_next(span(placement.bytes), page_);
    if (!address) {
        for (const Taken &one : taking_) {
            memories_[index(one.pe)].release(one.physical, one.bytes);
            used_ -= one.bytes;
        }
        problem = Outcome::failure(KL_STATUS_OUT_OF_MEMORY,
                                   text_of("no addresses for tensor %s", titled(tensor).c_str()));
        return nullptr;
    }
    tensor.address = *address;
    forget(*address, span(placement.bytes));
    Entry &entry = tensors_[*address];
    entry = {std::move(tensor), taking_};
    return &entry.tensor;
}

// Freed tensors whose addresses are used again are no longer known.
void Tensors::forget(std::uint64_t start, std::uint64_t bytes) {
    auto at = tensors_.lower_bound(start);
    while (at != tensors_.end() && at->first - start < bytes)
        at = tensors_.erase(at);
    if (at != tensors_.begin() && !tensors_.empty()) {
        --at;
        if (at->second.tensor.freed && at->first + span(at->second.tensor.bytes) > start)
            tensors_.erase(at);
    }
}

void Tensors::release(Tensor &tensor) {
    Entry &entry = tensors_[tensor.address];
    for (const Taken &one : entry.taken) {
        memories_[index(one.pe)].release(one.physical, one.bytes);
        used_ -= one.bytes;
    }
    entry.taken.clear();
    tensor.freed = true;
    addresses_.release(tensor.address, span(tensor.bytes));
}

void Tensors::abandon(Tensor &tensor) {
    tensor.freed = true;
}

Tensors::Entry *Tensors::entry_at(std::uint64_t address) {
    auto at = tensors_.upper_bound(address);
    if (at == tensors_.begin())
        return nullptr;
    --at;
    return address - at->first < at->second.tensor.bytes ? &at->second : nullptr;
}

Tensor *Tensors::find(std::uint64_t address, std::uint64_t bytes, Outcome &problem) {
    Entry *entry = entry_at(address);
    if (!entry) {
        problem =
            Outcome::failure(KL_STATUS_UNKNOWN_ADDRESS, text_of("no tensor is at address 0x%llx",
                                                                (unsigned long long)address));
        return nullptr;
    }
    Tensor &tensor = entry->tensor;
    if (tensor.freed) {
        problem =
            Outcome::failure(KL_STATUS_USE_AFTER_FREE,
                             text_of("tensor '%.200s' is freed already", tensor.label.c_str()));
        return nullptr;
    }
    const std::uint64_t offset = address - tensor.address;
    if (bytes > tensor.bytes - offset) {
        problem = Outcome::failure(KL_STATUS_INVALID,
                                   text_of("%llu bytes at offset %llu are more than tensor %s has",
                                           (unsigned long long)bytes, (unsigned long long)offset,
                                           titled(tensor).c_str()));
        return nullptr;
    }
    return &tensor;
}

Tensor *Tensors::find_start(std::uint64_t address, Outcome &problem) {
    Entry *entry = entry_at(address);
    if (entry && entry->tensor.address == address && entry->tensor.freed) {
        problem =
            Outcome::failure(KL_STATUS_DOUBLE_FREE, text_of("tensor '%.200s' is freed already",
                                                            entry->tensor.label.c_str()));
        return nullptr;
    }
    if (entry && entry->tensor.address != address) {
        problem =
            Outcome::failure(KL_STATUS_UNKNOWN_ADDRESS,
                             text_of("address 0x%llx is inside tensor '%.200s', not its "
                                     "start",
                                     (unsigned long long)address, entry->tensor.label.c_str()));
        return nullptr;
    }
    return find(address, 0, problem);
}

const Tensor *Tensors::freed_in(std::uint64_t address, std::uint64_t bytes) const {
    const Tensor *found = nullptr;
    for (const auto &[start, entry] : tensors_) {
        const bool before = start + entry.tensor.bytes <= address;
        if (before || (start >= address && start - address >= bytes))
            continue;
        if (!entry.tensor.freed)
            return nullptr;
        found = &entry.tensor;
    }
    return found;
}

std::string Tensors::nearest(std::uint64_t address) const {
    const Tensor *best = nullptr;
    std::uint64_t least = ~0ull;
    for (const auto &[start, entry] : tensors_) {
        const std::uint64_t last = start + entry.tensor.bytes - 1;
        const std::uint64_t distance = address < start  ? start - address
                                       : address > last ? address - last
                                                        : 0;
        if (distance <= std::max(entry.tensor.bytes, NEAR) && distance < least) {
            least = distance;
            best = &entry.tensor;
        }
    }
    if (!best)
        return "an address that no tensor is near";
    const auto offset = static_cast<long long>(address - best->address);
    return text_of("%s buffer '%.200s' of %llu bytes, at byte offset %lld",
                   best->freed ? "freed"
                   : least     ? "outside"
                               : "inside",
                   best->label.c_str(), (unsigned long long)best->bytes, offset);
}

} // namespace kernloom::host
