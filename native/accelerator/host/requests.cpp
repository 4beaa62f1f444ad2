// Requests to the device as a whole.
#include <algorithm>

#include "front_end.hpp"

namespace kernloom::host {

namespace {

constexpr std::uint32_t MOST_SAMPLES = 1000000;

Outcome wrong_size(const char *what) {
    return Outcome::invalid(text_of("%s has the wrong size", what));
}

} // namespace

Outcome FrontEnd::check_window(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset <= window_.bytes && bytes <= window_.bytes - offset)
        return {};
    return Outcome::invalid(text_of("%llu bytes at offset %llu leave the window of %llu",
                                    (unsigned long long)bytes, (unsigned long long)offset,
                                    (unsigned long long)window_.bytes));
}

Outcome FrontEnd::allocate(Reader &reader, const Addressed &addressed) {
    struct kl_allocate message;
    std::string label;
    if (!reader.take(message) || !reader.take_text(label, message.label_bytes) || reader.left())
        return wrong_size("Allocate");
    // By the default policy: without a list, one tensor for the device, and its owner is the first
    // PE with room for it.
    std::vector<kl_node> pes = addressed.listed ? addressed.parts : device_.all();
    if (!addressed.listed && policy_ == KL_POLICY_OWNER)
        for (const kl_node pe : device_.all())
            if (tensors_.memory(pe).largest() >= message.bytes) {
                pes = {pe};
                break;
            }
    Outcome problem;
    std::vector<Answer> answers;
    const Tensor *tensor = device_.place(
        {message.bytes, unit_, policy_, label, std::move(pes), false}, problem, answers);
    return tensor ? Outcome{KL_STATUS_OK, tensor->address, {}} : problem;
}

Outcome FrontEnd::place(Reader &reader, const Addressed &addressed, std::vector<Answer> &answers) {
    kl_place message;
    std::string label;
    if (!reader.take(message) || !reader.take_text(label, message.label_bytes) || reader.left())
        return wrong_size("Place");
    Outcome problem;
    const Tensor *tensor =
        device_.place({message.bytes, message.unit, message.policy, label, addressed.parts, false},
                      problem, answers);
    return tensor ? Outcome{KL_STATUS_OK, tensor->address, {}} : problem;
}

Outcome FrontEnd::release(Reader &reader) {
    kl_free message;
    if (!reader.take(message) || reader.left())
        return wrong_size("Free");
    const std::uint64_t address = message.address;
    if (Programs::is_id(address))
        return programs_.release(address);
    Outcome problem;
    Tensor *tensor = tensors_.find_start(address, problem);
    return tensor ? device_.release(*tensor) : problem;
}

Outcome FrontEnd::load(Reader &reader) {
    struct kl_load message;
    std::string path, entry, name;
    if (!reader.take(message) || !reader.take_text(path, message.path_bytes) ||
        !reader.take_text(entry, message.entry_bytes) ||
        !reader.take_text(name, message.name_bytes) || reader.left())
        return wrong_size("Load");
    return programs_.load(path, entry, name, message.arguments, message.buffers);
}

Outcome FrontEnd::transfer(std::uint16_t kind, Reader &reader) {
    // MemoryRead has the same fields.
    kl_memory_write message;
    if (!reader.take(message) || reader.left())
        return wrong_size(name_of_kind(kind));
    const Outcome fits = check_window(message.offset, message.bytes);
    if (!fits.ok())
        return fits;
    unsigned char *data = window_.data + message.offset;
    return kind == KL_KIND_MEMORY_WRITE ? device_.write(message.address, data, message.bytes)
                                        : device_.read(message.address, data, message.bytes);
}

Outcome FrontEnd::fill(Reader &reader) {
    kl_memory_fill message;
    if (!reader.take(message) || reader.left())
        return wrong_size("MemoryFill");
    if (message.value > 0xFF)
        return Outcome::invalid(text_of("%u is not a byte", message.value));
    return device_.fill(message.address, message.value, message.bytes);
}

Outcome FrontEnd::document(Reader &reader) {
    kl_document message;
    if (!reader.take(message) || reader.left())
        return wrong_size("Document");
    Outcome outcome = check_window(message.window, message.bytes);
    if (outcome.ok() && !message.bytes)
        outcome = launcher_.document(message.document, document_);
    if (!outcome.ok())
        return outcome;
    if (message.offset > document_.size() || message.bytes > document_.size() - message.offset)
        return Outcome::invalid(text_of("%llu bytes at offset %llu leave the document of %zu",
                                        (unsigned long long)message.bytes,
                                        (unsigned long long)message.offset, document_.size()));
    if (message.bytes)
        std::memcpy(window_.data + message.window, document_.data() + message.offset,
                    message.bytes);
    outcome.value = document_.size();
    return outcome;
}

Reply FrontEnd::launch(Reader &reader, const Addressed &addressed) {
    kl_kernel_launch message;
    std::vector<kl_launch_call> calls;
    std::vector<kl_launch_argument> arguments;
    const auto refused = [](Outcome outcome) { return Reply{std::move(outcome), {}, 0}; };
    if (!reader.take(message) || !reader.take_all(calls, message.calls_count) ||
        !reader.take_all(arguments, message.arguments_count) || reader.left())
        return refused(wrong_size("KernelLaunch"));
    if (message.samples > MOST_SAMPLES)
        return refused(Outcome::invalid(
            text_of("%u samples are more than %u", message.samples, MOST_SAMPLES)));
    if (calls.empty() && !message.orchestration)
        return refused(Outcome::invalid("a launch needs at least one call"));
    if (addressed.listed && addressed.parts.size() != 1)
        return refused(Outcome::invalid(text_of(
            "a launch goes to the device or to one PE, not to %zu", addressed.parts.size())));
    if (!message.inner || (message.conditions & KL_CONDITION_COLD))
        return refused(Outcome::failure(KL_STATUS_UNSUPPORTED,
                                        message.inner ? "an accelerator has no caches to empty"
                                                      : "virtual time needs no calibration"));
    Work work;
    if (addressed.listed && message.orchestration)
        return refused(Outcome::invalid("an orchestration goes to the device, not to one PE"));
    Outcome outcome =
        message.orchestration
            ? launcher_.prepare(message.orchestration, calls, arguments, work)
            : launcher_.prepare(calls, arguments,
                                addressed.listed ? &addressed.parts.front() : nullptr, work);
    if (!outcome.ok())
        return refused(std::move(outcome));
    for (std::uint32_t i = 0; i < message.warmup && outcome.ok(); i++)
        outcome = launcher_.run(work);
    Reply reply;
    reply.samples.reserve(message.samples);
    for (std::uint32_t i = 0; i < message.samples && outcome.ok(); i++) {
        platform_.begin_launch(platform_.self);
        const std::uint64_t begin = exchange_.now();
        for (std::uint64_t j = 0; j < message.inner && outcome.ok(); j++)
            outcome = launcher_.run(work);
        kl_sample sample{};
        sample.virtual_ps = exchange_.now() - begin;
        reply.samples.push_back(sample);
    }
    if (!outcome.ok())
        return refused(std::move(outcome));
    reply.outcome.value = message.inner;
    return reply;
}

} // namespace kernloom::host
