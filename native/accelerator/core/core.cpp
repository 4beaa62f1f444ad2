#include "core.hpp"

#include <algorithm>
#include <cerrno>

#include "builtin.hpp"

namespace kernloom::core {

Core::Core(const kl_platform &platform, kl_node node)
    : platform_(platform), node_(node), sram_(platform.arch->sram_bytes),
      code_(platform, node, node) {
}

Core::~Core() {
    settle();
}

void Core::receive(const kl_delivery &delivery) {
    // What is being recorded must not see a change of mappings or memory.
    settle();
    Reader reader(delivery.message, delivery.bytes);
    kl_header header{};
    if (delivery.damaged || !reader.take(header))
        // Not even the number of the request can be trusted.
        return respond(platform_, node_, delivery.from, 0, 0,
                       Outcome::failure(KL_STATUS_DAMAGED, text_of("%s received a damaged message",
                                                                   name_of(node_).c_str())));
    Outcome outcome;
    std::uint64_t bulk = 0;
    switch (header.kind) {
    case KL_KIND_MMU_MAP:
        outcome = map(reader);
        break;
    case KL_KIND_MMU_UNMAP:
        outcome = unmap(reader);
        break;
    case KL_KIND_MEMORY_WRITE:
        outcome = write(reader);
        break;
    case KL_KIND_MEMORY_READ:
        outcome = read(reader, bulk);
        break;
    case KL_KIND_MEMORY_FILL:
        outcome = fill(reader);
        break;
    case KL_KIND_PE_DMA:
    case FABRIC_RUN:
    case FABRIC_BLOCK: {
        Job job;
        job.from = delivery.from;
        job.kind = header.kind;
        job.request = header.request;
        if (header.kind == KL_KIND_PE_DMA ? read_probe(reader, job) : read_task(reader, job))
            return add(std::move(job));
        outcome = Outcome::failure(KL_STATUS_INVALID, "a task is cut short");
        break;
    }
    default:
        outcome = Outcome::failure(KL_STATUS_INVALID, text_of("%s knows no request of kind %u",
                                                              name_of(node_).c_str(), header.kind));
    }
    respond(platform_, node_, delivery.from, header.kind, header.request, outcome, bulk);
}

void Core::add(Job job) {
    forget_before(job);
    jobs_.push_back(std::move(job));
    if (jobs_.size() == 1)
        start();
}

// Forgets tasks of an earlier launch, which has failed. One that waits for PEs to start with waits
// for ever.
void Core::forget_before(const Job &job) {
    const auto stale = [&](const Job &other) {
        return other.kind == FABRIC_BLOCK &&
               (job.kind != FABRIC_BLOCK || other.part.launch != job.part.launch);
    };
    if (jobs_.empty())
        return;
    const bool stuck = jobs_.front().meeting && stale(jobs_.front());
    if (stuck)
        meet(jobs_.front(), 0);
    jobs_.erase(std::remove_if(jobs_.begin() + (stuck ? 0 : 1), jobs_.end(), stale), jobs_.end());
    if (stuck && !jobs_.empty())
        start();
}

void Core::meet(const Job &job, std::uint32_t members) {
    platform_.meet(platform_.self, node_, std::uint64_t{job.part.launch} << 32 | job.part.gang,
                   members, job.serial << TOKEN_BITS | MET);
}

bool Core::read_task(Reader &reader, Job &job) const {
    if (!reader.take(job.task) || (job.kind == FABRIC_BLOCK && !reader.take(job.part)) ||
        !reader.take_all(job.arguments, job.task.arguments))
        return false;
    job.task.name[TASK_NAME_BYTES - 1] = '\0';
    return true;
}

// A probe is a copy like the built-in one, without a task's costs.
bool Core::read_probe(Reader &reader, Job &job) const {
    kl_pe_dma message;
    if (!reader.take(message))
        return false;
    job.task.id = job.request;
    std::strcpy(job.task.name, "probe");
    job.arguments = {message.destination, message.source, message.bytes};
    return true;
}

namespace {

// One of the ends of a probe may be the SRAM.
void probe(kl_core *core, const std::uint64_t *args) {
    const std::uint64_t to = args[0], from = args[1], bytes = args[2];
    if (to < KL_SRAM_BASE && from < KL_SRAM_BASE)
        return builtin_entry(BUILTIN_COPY)(core, args);
    if (to >= KL_SRAM_BASE && from >= KL_SRAM_BASE)
        return core->functions->fail(core, "both ends are in SRAM");
    auto *sram = static_cast<unsigned char *>(kl_allocate(core, core->sram_bytes));
    const std::uint64_t offset = (to < KL_SRAM_BASE ? from : to) - KL_SRAM_BASE;
    if (offset > core->sram_bytes || bytes > core->sram_bytes - offset)
        return core->functions->fail(core, "it leaves the SRAM (arch.sram.bytes)");
    if (bytes)
        kl_wait(core, to < KL_SRAM_BASE ? kl_store(core, to, sram + offset, bytes)
                                        : kl_load(core, sram + offset, from, bytes));
}

} // namespace

std::string Core::title_of(const Job &job) {
    if (job.kind == KL_KIND_PE_DMA)
        return "the DMA probe";
    return text_of("task %llu '%s'", (unsigned long long)job.task.id, job.task.name);
}

void Core::start() {
    Job &job = jobs_.front();
    const bool task = job.kind != KL_KIND_PE_DMA;
    job.recorder = std::make_unique<Recorder>(platform_, node_, sram_, title_of(job));
    job.recorder->block = job.part.block;
    job.recorder->blocks = job.part.of_blocks;
    job.serial = ++serials_;
    if (!task) {
        record();
        return replay();
    }
    recording_ = true;
    platform_.start_work(
        platform_.self, node_, [](void *core) { static_cast<Core *>(core)->record(); }, this);
    const kl_arch &arch = *platform_.arch;
    job.begin_ps = platform_.now(platform_.self);
    platform_.after(platform_.self, node_, arch.dispatch_ps + arch.switch_ps,
                    job.serial << TOKEN_BITS | START);
}

void Core::record() {
    Job &job = jobs_.front();
    Recorder &recorder = *job.recorder;
    // After a crash, errno is this kernel's own, not that of an earlier one on the same thread.
    errno = 0;
    kl_core_entry_function entry = probe;
    const bool task = job.kind != KL_KIND_PE_DMA;
    if (task && job.task.code_bytes) {
        void *symbol = code_.find({job.task.code, job.task.code_bytes, job.task.function},
                                  title_of(job), job.outcome);
        std::memcpy(&entry, &symbol, sizeof symbol);
    } else if (task) {
        const unsigned builtin = job.task.function;
        entry = builtin < BUILTINS ? builtin_entry(builtin) : nullptr;
        if (!entry)
            recorder.fail_with(KL_STATUS_UNKNOWN_KERNEL, "is no built-in timing model");
        else if (BUILTIN_MODELS[builtin].arguments != job.task.arguments)
            recorder.fail_with(KL_STATUS_WRONG_ARGUMENT_COUNT,
                               text_of("takes %u arguments, not %u",
                                       BUILTIN_MODELS[builtin].arguments, job.task.arguments));
    }
    if (entry && recorder.outcome().ok())
        recorder.run(entry, job.arguments.data());
    if (job.outcome.ok())
        job.outcome = recorder.outcome();
}

// Waits for the end of a recording.
void Core::settle() {
    if (recording_)
        platform_.finish_work(platform_.self, node_);
    recording_ = false;
}

void Core::timer(std::uint64_t token) {
    settle();
    if (jobs_.empty())
        return;
    Job &job = jobs_.front();
    if (token >> TOKEN_BITS != job.serial)
        return;
    token &= (1 << TOKEN_BITS) - 1;
    const std::uint64_t now = platform_.now(platform_.self);
    if (token == START) {
        platform_.trace(platform_.self, node_, "switch", job.begin_ps, now);
        if (job.part.members < 2)
            return replay();
        job.meeting = true;
        meet(job, job.part.members);
    } else if (token == MET && job.meeting) {
        job.meeting = false;
        replay();
    } else if (token == COMPLETE) {
        platform_.trace(platform_.self, node_, "complete", now - platform_.arch->complete_ps, now);
        complete();
    }
}

void Core::replay() {
    Job &job = jobs_.front();
    job.begin_ps = platform_.now(platform_.self);
    if (!job.outcome.ok())
        return complete();
    const std::vector<kl_action> &actions = job.recorder->actions();
    platform_.replay(platform_.self, node_, ++replays_, job.task.name, actions.data(),
                     actions.size());
}

void Core::replayed(std::uint64_t task) {
    if (jobs_.empty() || task != replays_)
        return;
    Job &job = jobs_.front();
    job.outcome.value = platform_.now(platform_.self) - job.begin_ps;
    job.outcome.virtual_ps = job.kind != KL_KIND_PE_DMA ? platform_.now(platform_.self) : 0;
    if (job.kind != KL_KIND_PE_DMA)
        platform_.after(platform_.self, node_, platform_.arch->complete_ps,
                        job.serial << TOKEN_BITS | COMPLETE);
    else
        complete();
}

// Leaves what the job has done where the control program looks for it.
void Core::hand_over(Job &job) const {
    if (!job.part.actions || !job.outcome.ok())
        return;
    auto *const transfer =
        reinterpret_cast<ActionsTransfer *>(static_cast<std::uintptr_t>(job.part.actions));
    if (transfer->request == job.request)
        transfer->actions = job.recorder->take_actions();
}

void Core::complete() {
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    hand_over(job);
    respond(platform_, node_, job.from, job.kind, job.request, job.outcome);
    if (!jobs_.empty())
        start();
}

} // namespace kernloom::core

namespace {

using kernloom::core::Core;

Core *core(void *state) {
    return static_cast<Core *>(state);
}

constexpr struct kl_program PROGRAM = {
    KL_PLATFORM_ABI,
    sizeof(struct kl_program),
    "core",
    KL_NODE_PE,
    [](const kl_platform *platform, kl_node node, const char *) -> void * {
        return new Core(*platform, node);
    },
    [](void *state, const kl_delivery *delivery) { core(state)->receive(*delivery); },
    [](void *state, std::uint64_t token) { core(state)->timer(token); },
    [](void *state, std::uint64_t task) { core(state)->replayed(task); },
    [](void *state) { delete core(state); },
};

} // namespace

extern "C" __attribute__((visibility("default"))) const struct kl_program *kl_program(void) {
    return &PROGRAM;
}
