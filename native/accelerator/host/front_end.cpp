#include "front_end.hpp"

#include <algorithm>
#include <unistd.h>

namespace kernloom::host {

namespace {

// Bytes that tensors may take, of this machine's memory.
std::uint64_t memory_limit(const Settings &settings) {
    const std::uint64_t machine = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                  static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t limit = settings.number("memory.limit", 0);
    return limit ? limit : machine;
}

std::uint32_t default_policy(const Settings &settings) {
    const std::string_view name = settings.text("place.policy");
    return name == "replicate" ? KL_POLICY_REPLICATE
           : name == "shard"   ? KL_POLICY_SHARD
                               : KL_POLICY_OWNER;
}

bool is_access(std::uint16_t kind) {
    return kind == KL_KIND_MEMORY_WRITE || kind == KL_KIND_MEMORY_READ ||
           kind == KL_KIND_MEMORY_FILL;
}

} // namespace

FrontEnd::FrontEnd(const kl_platform &platform, kl_node node, const char *settings)
    : platform_(platform), exchange_(platform, node, answer_timeout_ps(Settings(settings))),
      tensors_(*platform.arch, memory_limit(Settings(settings))),
      device_(platform, exchange_, tensors_), programs_(*platform.arch, device_, tensors_),
      launcher_(platform, node, Settings(settings), exchange_, tensors_, device_, programs_),
      policy_(default_policy(Settings(settings))),
      unit_(Settings(settings).number("place.unit", 0)) {
}

// The parts that a message is for, each once. A part that does not exist is one, too: it gets a
// response.
bool FrontEnd::read_addressees(const kl_header &header, Reader &reader,
                               Addressed &addressed) const {
    std::vector<kl_addressee> listed;
    if (!reader.take_all(listed, header.addressees))
        return false;
    addressed.listed = !listed.empty();
    if (listed.empty()) {
        kl_addressee own{};
        own.sip = header.sip;
        own.cube = header.cube;
        own.pe = header.pe;
        listed.push_back(own);
    }
    const kl_arch &arch = *platform_.arch;
    std::vector<bool> seen(device_.all().size());
    std::vector<kl_node> unknown;
    const auto add = [&](std::uint32_t sip, std::uint32_t cube, std::uint32_t pe) {
        const kl_node part = {KL_NODE_PE, static_cast<std::uint16_t>(sip),
                              static_cast<std::uint16_t>(cube), static_cast<std::uint16_t>(pe)};
        if (device_.exists(part)) {
            const std::size_t place = (std::size_t{sip} * arch.cubes + cube) * arch.pes + pe;
            if (seen[place])
                return;
            seen[place] = true;
        } else {
            addressed.exist = false;
            for (const kl_node other : unknown)
                if (same_node(part, other))
                    return;
            unknown.push_back(part);
        }
        addressed.parts.push_back(part);
    };
    const auto first = [](std::uint16_t given) { return given == KL_EVERY ? 0u : given; };
    const auto last = [](std::uint16_t given, std::uint32_t count) {
        return given == KL_EVERY ? count : given + 1u;
    };
    for (const kl_addressee &one : listed)
        for (std::uint32_t sip = first(one.sip); sip < last(one.sip, arch.sips); sip++)
            for (std::uint32_t cube = first(one.cube); cube < last(one.cube, arch.cubes); cube++)
                for (std::uint32_t pe = first(one.pe); pe < last(one.pe, arch.pes); pe++)
                    add(sip, cube, pe);
    return true;
}

void FrontEnd::respond_with(const kl_header &header, kl_node responder, const Reply &reply) {
    kl_header answer = header;
    kl_response response{};
    const std::size_t samples = reply.samples.size() * sizeof(kl_sample);
    const std::size_t detail = std::min<std::size_t>(reply.outcome.detail.size(), 2048);
    answer.magic = KL_MAGIC;
    answer.version = KL_VERSION;
    answer.kind = KL_KIND_RESPONSE;
    answer.sip = responder.sip;
    answer.cube = responder.cube;
    answer.pe = responder.pe;
    answer.addressees = 0;
    answer.size = static_cast<std::uint32_t>(sizeof answer + sizeof response + detail + samples);
    response.answers = header.kind;
    response.status = reply.outcome.status;
    response.value = reply.outcome.value;
    response.detail_bytes = static_cast<std::uint32_t>(detail);
    response.samples_count = static_cast<std::uint32_t>(reply.samples.size());
    response.virtual_ps = reply.virtual_ps;
    const auto append = [this](const void *data, std::size_t bytes) {
        const std::size_t before = responses_.size();
        responses_.resize(before + bytes);
        if (bytes)
            std::memcpy(responses_.data() + before, data, bytes);
    };
    append(&answer, sizeof answer);
    append(&response, sizeof response);
    append(reply.outcome.detail.data(), detail);
    append(reply.samples.data(), samples);
}

const std::vector<unsigned char> &FrontEnd::request(const void *message, std::size_t bytes,
                                                    Window window) {
    Reader reader(message, bytes);
    kl_header header{};
    Addressed addressed;
    std::string problem;
    responses_.clear();
    window_ = window;
    if (!reader.take(header))
        problem = text_of("%zu bytes are too few for a header", bytes);
    else if (header.magic != KL_MAGIC || header.version != KL_VERSION || header.size != bytes)
        problem = "what was received is not a whole message of this version";
    else if (!read_addressees(header, reader, addressed))
        problem = text_of("the list of %u addressees is cut short", header.addressees);
    if (!problem.empty()) {
        respond_with(header, {KL_NODE_PE, header.sip, header.cube, header.pe},
                     {Outcome::failure(KL_STATUS_INVALID, problem), {}, 0});
        return responses_;
    }
    const std::vector<Reply> replies = execute(header, reader, addressed);
    for (std::size_t i = 0; i < addressed.parts.size(); i++)
        respond_with(header, addressed.parts[i], replies[std::min(i, replies.size() - 1)]);
    return responses_;
}

// The reply of each addressee, or one for all of them.
std::vector<Reply> FrontEnd::execute(const kl_header &header, Reader &reader,
                                     const Addressed &addressed) {
    const kl_arch &arch = *platform_.arch;
    if (!addressed.exist) {
        std::vector<Reply> replies;
        for (const kl_node part : addressed.parts) {
            Outcome outcome = Outcome::failure(KL_STATUS_INVALID,
                                               "not carried out: another addressee does not exist");
            if (!device_.exists(part))
                outcome = Outcome::failure(
                    KL_STATUS_UNKNOWN_ADDRESS,
                    text_of("there is no %s: the device has %u sips of %u cubes of %u PEs "
                            "(arch.topology)",
                            name_of(part).c_str(), arch.sips, arch.cubes, arch.pes));
            replies.push_back({std::move(outcome), {}, 0});
        }
        return replies;
    }
    const std::uint64_t begin = exchange_.now();
    std::vector<Reply> replies;
    if (header.kind == KL_KIND_MMU_MAP)
        replies = map_each(reader, addressed);
    else if (header.kind == KL_KIND_MMU_UNMAP)
        replies = unmap_each(reader, addressed);
    else if (header.kind == KL_KIND_PE_DMA)
        replies = probe_each(reader, addressed);
    else if (header.kind == KL_KIND_PLACE)
        replies = place_each(reader, addressed);
    else if (is_access(header.kind) && addressed.listed)
        replies = access_each(header.kind, reader, addressed);
    else
        replies.push_back(execute_once(header, reader, addressed));
    for (Reply &reply : replies)
        if (!reply.virtual_ps)
            reply.virtual_ps = exchange_.now() - begin;
    return replies;
}

Reply FrontEnd::execute_once(const kl_header &header, Reader &reader, const Addressed &addressed) {
    switch (header.kind) {
    case KL_KIND_ALLOCATE:
        return {allocate(reader, addressed), {}, 0};
    case KL_KIND_FREE:
        return {release(reader), {}, 0};
    case KL_KIND_MEMORY_WRITE:
    case KL_KIND_MEMORY_READ:
        return {transfer(header.kind, reader), {}, 0};
    case KL_KIND_MEMORY_FILL:
        return {fill(reader), {}, 0};
    case KL_KIND_LOAD:
        return {load(reader), {}, 0};
    case KL_KIND_KERNEL_LAUNCH:
        return launch(reader, addressed);
    case KL_KIND_DOCUMENT:
        return {document(reader), {}, 0};
    case KL_KIND_HELLO:
        return {{KL_STATUS_OK, KL_VERSION, {}}, {}, 0};
    case KL_KIND_CLOSE:
        return {};
    default:
        return {
            Outcome::failure(KL_STATUS_INVALID,
                             text_of("%u is no kind of request that a device takes", header.kind)),
            {},
            0};
    }
}

} // namespace kernloom::host

namespace {

using kernloom::host::FrontEnd;

FrontEnd *front_end(void *state) {
    return static_cast<FrontEnd *>(state);
}

constexpr struct kl_program PROGRAM = {
    KL_PLATFORM_ABI,
    sizeof(struct kl_program),
    "host",
    KL_NODE_HOST,
    [](const kl_platform *platform, kl_node node, const char *settings) -> void * {
        return new FrontEnd(*platform, node, settings);
    },
    [](void *state, const kl_delivery *delivery) { front_end(state)->receive(*delivery); },
    [](void *state, std::uint64_t token) { front_end(state)->timer(token); },
    [](void *, std::uint64_t) {},
    [](void *state) { delete front_end(state); },
};

constexpr struct kl_host_interface INTERFACE = {
    KL_PLATFORM_ABI,
    sizeof(struct kl_host_interface),
    [](void *state, const void *message, std::size_t bytes, unsigned char *window,
       std::uint64_t window_bytes, std::size_t *response_bytes) -> const void * {
        const auto &responses = front_end(state)->request(message, bytes, {window, window_bytes});
        *response_bytes = responses.size();
        return responses.data();
    },
};

} // namespace

extern "C" __attribute__((visibility("default"))) const struct kl_program *kl_program(void) {
    return &PROGRAM;
}

extern "C" __attribute__((visibility("default"))) const struct kl_host_interface *kl_host(void) {
    return &INTERFACE;
}
