#include "device.hpp"

#include <algorithm>

namespace kernloom::host {

const Answer *failed(const std::vector<Answer> &answers) {
    for (const Answer &answer : answers)
        if (!answer.outcome.ok())
            return &answer;
    return nullptr;
}

Device::Device(const kl_platform &platform, Exchange &exchange, Tensors &tensors)
    : platform_(platform), exchange_(exchange), tensors_(tensors) {
    const kl_arch &arch = *platform.arch;
    for (std::uint32_t sip = 0; sip < arch.sips; sip++)
        for (std::uint32_t cube = 0; cube < arch.cubes; cube++)
            for (std::uint32_t pe = 0; pe < arch.pes; pe++)
                all_.push_back({KL_NODE_PE, static_cast<std::uint16_t>(sip),
                                static_cast<std::uint16_t>(cube), static_cast<std::uint16_t>(pe)});
}

bool Device::exists(kl_node pe) const {
    const kl_arch &arch = *platform_.arch;
    return pe.sip < arch.sips && pe.cube < arch.cubes && pe.pe < arch.pes;
}

std::vector<kl_node> Device::mapped_on(const Tensor &tensor) const {
    if (tensor.policy != KL_POLICY_REPLICATE)
        return all_;
    std::vector<kl_node> found;
    for (const Segment &segment : tensor.segments)
        found.push_back(segment.pe);
    return found;
}

void Device::send_map(kl_node pe, const std::vector<kl_mapping> &mappings) {
    const std::uint64_t request = exchange_.next_request();
    Packet packet(KL_KIND_MMU_MAP, request);
    kl_mmu_map message{};
    message.mappings_count = static_cast<std::uint32_t>(mappings.size());
    packet.add(message);
    packet.append(mappings.data(), mappings.size() * sizeof mappings[0]);
    exchange_.send(pe, request, KL_KIND_MMU_MAP, packet);
}

void Device::send_unmap(kl_node pe, std::uint64_t address, std::uint64_t bytes) {
    const std::uint64_t request = exchange_.next_request();
    Packet packet(KL_KIND_MMU_UNMAP, request);
    kl_mmu_unmap message{};
    message.virtual_address = address;
    message.bytes = bytes;
    packet.add(message);
    exchange_.send(pe, request, KL_KIND_MMU_UNMAP, packet);
}

Tensor *Device::place(const Placement &placement, Outcome &problem, std::vector<Answer> &answers) {
    Tensor *tensor = tensors_.place(placement, problem);
    if (!tensor)
        return nullptr;
    exchange_.begin();
    for (const kl_node pe : mapped_on(*tensor))
        send_map(pe, tensor->mappings(pe));
    answers = exchange_.wait();
    const Answer *failure = failed(answers);
    if (!failure)
        return tensor;
    problem = Outcome::failure(failure->outcome.status,
                               text_of("tensor '%.200s' cannot be mapped: %s",
                                       tensor->label.c_str(), failure->outcome.detail.c_str()));
    exchange_.begin();
    for (const Answer &answer : answers)
        // A PE that did not answer may have mapped it.
        if (answer.outcome.ok() || answer.outcome.status == KL_STATUS_NO_ANSWER)
            send_unmap(answer.from, tensor->address, tensor->bytes);
    if (failed(exchange_.wait()))
        tensors_.abandon(*tensor);
    else
        tensors_.release(*tensor);
    return nullptr;
}

Outcome Device::release(Tensor &tensor) {
    for (const Answer &answer : unmap(mapped_on(tensor), tensor.address, tensor.bytes)) {
        // The mapping may have been removed by a message before.
        if (answer.outcome.ok() || answer.outcome.status == KL_STATUS_UNKNOWN_ADDRESS)
            continue;
        tensors_.abandon(tensor);
        return Outcome::failure(answer.outcome.status,
                                text_of("tensor '%.200s' cannot be unmapped, so its memory is not "
                                        "used again: %s",
                                        tensor.label.c_str(), answer.outcome.detail.c_str()));
    }
    tensors_.release(tensor);
    return {};
}

// The pieces of a range of a tensor.
std::vector<Device::Piece> Device::pieces(const Tensor &tensor, std::uint64_t offset,
                                          std::uint64_t bytes, bool all_copies) const {
    std::vector<Piece> found;
    for (const Segment &segment : tensor.segments) {
        const std::uint64_t begin = std::max(offset, segment.offset);
        const std::uint64_t end = std::min(offset + bytes, segment.offset + segment.bytes);
        if (begin < end)
            found.push_back({&segment, segment.physical + (begin - segment.offset), begin - offset,
                             end - begin});
        if (tensor.policy == KL_POLICY_REPLICATE && !all_copies && !found.empty())
            break;
    }
    return found;
}

Outcome Device::write(std::uint64_t address, unsigned char *data, std::uint64_t bytes) {
    Outcome problem;
    const Tensor *tensor = tensors_.find(address, bytes, problem);
    if (!tensor)
        return problem;
    exchange_.begin();
    for (const Piece &piece : pieces(*tensor, address - tensor->address, bytes, true))
        exchange_.send_transfer(piece.segment->pe, KL_KIND_MEMORY_WRITE, piece.physical,
                                data + piece.offset, piece.bytes);
    const Answer *failure = failed(exchange_.wait());
    return failure ? failure->outcome : Outcome{};
}

Outcome Device::read(std::uint64_t address, unsigned char *data, std::uint64_t bytes) {
    Outcome problem;
    const Tensor *tensor = tensors_.find(address, bytes, problem);
    if (!tensor)
        return problem;
    exchange_.begin();
    for (const Piece &piece : pieces(*tensor, address - tensor->address, bytes, false))
        exchange_.send_transfer(piece.segment->pe, KL_KIND_MEMORY_READ, piece.physical,
                                data + piece.offset, piece.bytes);
    const Answer *failure = failed(exchange_.wait());
    return failure ? failure->outcome : Outcome{};
}

Outcome Device::fill(std::uint64_t address, std::uint32_t value, std::uint64_t bytes) {
    Outcome problem;
    const Tensor *tensor = tensors_.find(address, bytes, problem);
    if (!tensor)
        return problem;
    exchange_.begin();
    for (const Piece &piece : pieces(*tensor, address - tensor->address, bytes, true)) {
        const std::uint64_t request = exchange_.next_request();
        Packet packet(KL_KIND_MEMORY_FILL, request);
        kl_memory_fill message{};
        message.address = piece.physical;
        message.bytes = piece.bytes;
        message.value = value;
        packet.add(message);
        exchange_.send(piece.segment->pe, request, KL_KIND_MEMORY_FILL, packet);
    }
    const Answer *failure = failed(exchange_.wait());
    return failure ? failure->outcome : Outcome{};
}

std::vector<Answer> Device::map(const std::vector<kl_node> &pes,
                                const std::vector<kl_mapping> &mappings) {
    exchange_.begin();
    for (const kl_node pe : pes)
        send_map(pe, mappings);
    const std::vector<Answer> answers = exchange_.wait();
    if (!failed(answers))
        return answers;
    exchange_.begin();
    for (const Answer &answer : answers)
        if (answer.outcome.ok() || answer.outcome.status == KL_STATUS_NO_ANSWER)
            for (const kl_mapping &mapping : mappings)
                send_unmap(answer.from, mapping.virtual_address, mapping.bytes);
    exchange_.wait();
    return answers;
}

std::vector<Answer> Device::unmap(const std::vector<kl_node> &pes, std::uint64_t address,
                                  std::uint64_t bytes) {
    exchange_.begin();
    for (const kl_node pe : pes)
        send_unmap(pe, address, bytes);
    return exchange_.wait();
}

} // namespace kernloom::host
