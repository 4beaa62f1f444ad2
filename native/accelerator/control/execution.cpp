#include "execution.hpp"

#include <algorithm>

#include "orchestrator.hpp"
#include "predicate.hpp"
#include "region.hpp"

namespace kernloom::control {

namespace {

constexpr kl_node FIRST_PE = {KL_NODE_PE, 0, 0, 0};

} // namespace

Execution::Execution(const kl_platform &platform, kl_node node, const char *text,
                     std::unique_ptr<Order> order, std::uint64_t &requests)
    : platform_(platform), node_(node), timeout_ps_(answer_timeout_ps(Settings(text))),
      order_(std::move(order)), limits_(tasks::ring_limits(Settings(text))),
      scheduler_(*platform.arch, static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
                                     Settings(text).number("queue", 2), 1, 64))),
      code_(platform, node, FIRST_PE), timed_(Settings(text).number("times", 0) == 1),
      look_(Settings(text).number("hazards", 1) == 1),
      keeps_launch_(wants_edges(Settings(text)) || !Settings(text).text("replay").empty()),
      replay_(platform, node, std::string(Settings(text).text("replay"))),
      trace_(platform, node, trace_level(Settings(text)) >= 2), requests_(requests) {
    if (timed_)
        scheduler_.list_ready(&readied_);
    for (std::uint64_t i = 0; i < scheduler_.pes().size(); i++)
        pes_.emplace_back(platform, node, i << TOKEN_BITS | PE_WATCHDOG);
}

void Execution::forget() {
    request_ = 0;
    replay_.forget();
    step_++;
    doing_ = Doing::NOTHING;
    completions_.clear();
    for (Pe &pe : pes_) {
        pe.sent.clear();
        pe.watchdog.stop();
    }
}

Outcome Execution::read(Reader &reader) {
    LaunchRecord message{};
    kernels_.clear();
    core_types_.clear();
    tensors_.clear();
    values_.clear();
    if (!reader.take(message) || !reader.take_all(kernels_, message.kernels) ||
        !reader.take_all(tensors_, message.tensors) || !reader.take_all(values_, message.values) ||
        reader.left())
        return Outcome::failure(KL_STATUS_INVALID, "a launch is cut short");
    launch_ = message.launch;
    heap_ = message.heap;
    for (KernelRecord &kernel : kernels_) {
        kernel.name[TASK_NAME_BYTES - 1] = '\0';
        core_types_.push_back(kernel.core_type);
    }
    graph_.reset();
    if (!message.graph)
        return orchestrate(message.orchestration);
    const auto *transfer =
        reinterpret_cast<const GraphTransfer *>(static_cast<std::uintptr_t>(message.graph));
    graph_ = transfer->graph;
    if (!graph_)
        return Outcome::failure(KL_STATUS_NO_ANSWER, "the host has given up");
    transcript_ = &graph_->transcript;
    return {};
}

// Runs the orchestration here.
Outcome Execution::orchestrate(const CodeRecord &code) {
    Outcome problem;
    void *symbol = code_.find(code, "the orchestration", problem);
    kl_orchestrate_function function = nullptr;
    std::memcpy(&function, &symbol, sizeof symbol);
    if (!function)
        return problem;
    std::vector<std::uint64_t> bytes;
    for (const TensorRecord &tensor : tensors_)
        bytes.push_back(tensor.bytes);
    std::vector<tasks::KernelView> kernels;
    for (const KernelRecord &kernel : kernels_)
        kernels.push_back(tasks::KernelView::of(kernel));
    transcript_ = &own_;
    return tasks::record(function, {platform_.arch, bytes, values_, kernels}, limits_, own_);
}

void Execution::launch(const kl_delivery &delivery, const kl_header &header, Reader &reader) {
    host_ = delivery.from;
    request_ = header.request;
    failure_ = {};
    // Documents are about this launch or none: what they read of an earlier one is overwritten.
    transcript_ = nullptr;
    replay_.begin(NONE, 0);
    Outcome outcome = read(reader);
    if (outcome.ok())
        outcome = scheduler_.begin(*transcript_, core_types_, *order_);
    if (outcome.ok() && timed_) {
        times_.clear();
        times_.units.resize(scheduler_.units());
        times_.arrived_ps = now();
        for (Pe &pe : pes_)
            pe.last = pe.completed = pe.room = NONE;
    }
    if (outcome.ok())
        outcome = order_->begin(*transcript_, graph_.get(), scheduler_);
    if (!outcome.ok()) {
        transcript_ = nullptr;
        return respond_with(outcome);
    }
    if (look_)
        begin_hazards();
    if (!replay_.wanted().empty())
        begin_replay();
    if (trace_.wanted())
        trace_.begin(scheduler_.units());
    note_submitted(0);
    note_ready(NONE);
    advance();
}

void Execution::begin(Doing doing, std::uint64_t cost_ps) {
    doing_ = doing;
    platform_.after(platform_.self, node_, cost_ps, ++step_ << TOKEN_BITS | STEP);
}

// Decides what the CPU does next.
void Execution::advance() {
    if (doing_ != Doing::NOTHING || !request_)
        return;
    const kl_arch &arch = *platform_.arch;
    tell_idle();
    if (trace_.wanted())
        trace_.count(scheduler_, *order_);
    if (!completions_.empty())
        return begin(Doing::COMPLETE, arch.register_load_ps);
    switch (scheduler_.next()) {
    case Scheduler::Next::DISPATCH:
        return begin(Doing::DISPATCH, arch.register_store_ps);
    case Scheduler::Next::PREDICATE:
        return begin(Doing::PREDICATE, arch.register_load_ps);
    case Scheduler::Next::NOTHING:
        break;
    }
    if (failure_.ok() && order_->can_submit())
        return begin(Doing::SUBMIT, arch.submit_ps);
    if (scheduler_.running())
        return;
    if (failure_.ok() && !order_->done())
        failure_ = order_->stuck(now());
    if (failure_.ok() && look_)
        failure_ = hazards_.races();
    if (trace_.wanted())
        trace_.draw(*transcript_, scheduler_, order_->edges());
    if (failure_.ok()) {
        platform_.note(platform_.self, (order_->peaks() + text_of("peak.queue.ready=%u/0/0\n",
                                                                  scheduler_.most_ready()))
                                           .c_str());
        if (timed_)
            tell_path();
    }
    respond_with(Outcome(failure_));
}

void Execution::timer(std::uint64_t token) {
    if ((token & ((1 << TOKEN_BITS) - 1)) == PE_WATCHDOG) {
        const auto place = static_cast<std::uint32_t>(token >> TOKEN_BITS);
        Pe &pe = pes_[place];
        if (!pe.watchdog.fired() || pe.sent.empty())
            return;
        const Outcome silence = no_answer(
            platform_,
            text_of("%s did not answer Run of %s%s", name_of(scheduler_.pes()[place]).c_str(),
                    name_of_unit(pe.sent.front().unit).c_str(), gang_of(place).c_str()),
            timeout_ps_, ANSWER_TIMEOUT_KEY);
        // Nothing of what it has will be answered.
        for (const Sent &sent : pe.sent)
            completions_.push_back({place, sent.request, silence});
        return advance();
    }
    if (token >> TOKEN_BITS != step_ || !request_)
        return;
    const Doing doing = doing_;
    doing_ = Doing::NOTHING;
    switch (doing) {
    case Doing::NOTHING:
        return;
    case Doing::COMPLETE:
        complete();
        break;
    case Doing::DISPATCH:
        dispatch();
        break;
    case Doing::PREDICATE:
        decide();
        break;
    case Doing::SUBMIT:
        submit();
        break;
    }
    advance();
}

// The PEs that a silent PE starts its task with: any of them may be why it does not start.
std::string Execution::gang_of(std::uint32_t place) const {
    constexpr std::size_t MOST_NAMED = 8;
    const Sent &silent = pes_[place].sent.front();
    std::string others;
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < pes_.size() && silent.gang; i++)
        if (i != place && !pes_[i].sent.empty() && pes_[i].sent.front().gang == silent.gang &&
            ++count <= MOST_NAMED)
            others += (count > 1 ? ", " : "") + name_of(scheduler_.pes()[i]);
    if (!count)
        return "";
    if (count > MOST_NAMED)
        others += text_of(" and %zu more", count - MOST_NAMED);
    return ", which starts at the same instant as on " + others + ": one of them is silent";
}

void Execution::answered(const kl_delivery &delivery) {
    if (replay_.running())
        return replay_.answered(delivery);
    const kl_arch &arch = *platform_.arch;
    const kl_node from = delivery.from;
    const std::uint32_t place = (from.sip * arch.cubes + from.cube) * arch.pes + from.pe;
    Pe &pe = pes_[place];
    std::uint64_t request = 0;
    Outcome outcome;
    if (delivery.damaged || !read_response(delivery, request, outcome)) {
        outcome = Outcome::failure(KL_STATUS_DAMAGED,
                                   text_of("%s received a damaged message of %s",
                                           name_of(node_).c_str(), name_of(from).c_str()));
        request = 0;
    }
    const auto sent = std::find_if(pe.sent.begin(), pe.sent.end(), [&](const Sent &one) {
        // A damaged request is answered without its number.
        return !request || one.request == request;
    });
    if (sent == pe.sent.end())
        return;
    completions_.push_back({place, sent->request, std::move(outcome)});
    advance();
}

void Execution::complete() {
    Completion done = std::move(completions_.front());
    completions_.pop_front();
    Pe &pe = pes_[done.pe];
    const auto sent = std::find_if(pe.sent.begin(), pe.sent.end(),
                                   [&](const Sent &one) { return one.request == done.request; });
    if (sent == pe.sent.end())
        return;
    const Sent job = *sent;
    const bool full = pe.sent.size() >= scheduler_.queue();
    const bool blocked = order_->blocked();
    pe.sent.erase(sent);
    pe.watchdog.stop();
    if (!pe.sent.empty())
        pe.watchdog.start(timeout_ps_);
    if (timed_)
        note_completed(job, done.pe, done.outcome, full);
    // A failure has no times: its value may be an address.
    if (trace_.wanted() && done.outcome.ok())
        trace_.ended(job.unit, done.pe, done.outcome.virtual_ps - done.outcome.value,
                     done.outcome.virtual_ps);
    if (done.outcome.ok() && look_)
        done.outcome = look_for_hazards(job);
    if (!done.outcome.ok()) {
        const std::string own = text_of("task %u '", scheduler_.task_of(job.unit));
        if (done.outcome.detail.find(own) == std::string::npos)
            done.outcome.detail = name_of_unit(job.unit) + ": " + done.outcome.detail;
        fail(std::move(done.outcome));
    }
    if (job.unit == replay_.unit())
        replay_.completed();
    scheduler_.completed(job.assignment);
    note_ready(job.unit);
    if (timed_ && blocked && order_->can_submit())
        times_.admissions.push_back({order_->submitted(), job.job});
    // What has become ready is not executed any more.
    if (!failure_.ok())
        scheduler_.abandon();
}

void Execution::fail(Outcome outcome) {
    if (failure_.ok())
        failure_ = std::move(outcome);
    scheduler_.abandon();
}

std::uint64_t Execution::address_of(std::uint32_t tensor) const {
    if (tensor < transcript_->launch_tensors)
        return tensors_[tensor].address;
    return heap_ + order_->offset_of(tensor - transcript_->launch_tensors);
}

std::uint64_t Execution::value_of(std::uint32_t unit, const tasks::Argument &argument) const {
    const std::uint32_t task = scheduler_.task_of(unit);
    const tasks::Argument bound =
        scheduler_.is_graph(task) ? tasks::bind(*transcript_, transcript_->tasks[task], argument)
                                  : argument;
    return bound.tensor == tasks::VALUE ? bound.bits : address_of(bound.tensor) + bound.bits;
}

void Execution::begin_hazards() {
    hazards_.begin(*transcript_, tensors_,
                   {[this](tasks::TaskPlace place) { return name_of_place(place); },
                    [this](std::uint32_t tensor) { return address_of(tensor); }});
}

// Looks at what a PE has handed over.
Outcome Execution::look_for_hazards(const Sent &job) {
    ActionsTransfer &transfer = actions_[job.assignment];
    transfer.request = 0;
    tasks::TaskPlace place = place_of(job.unit);
    place.block = job.block;
    return hazards_.add(place, transfer.actions);
}

void Execution::dispatch() {
    const Job job = scheduler_.dispatch();
    const Task &task = scheduler_.node(job.unit);
    const Transcript &transcript = scheduler_.transcript_of(job.unit);
    const KernelRecord &kernel = kernels_[job.kernel];
    TaskRecord record{};
    record.id = scheduler_.task_of(job.unit);
    record.code = kernel.code.address;
    record.code_bytes = kernel.code.bytes;
    record.function = kernel.code.function;
    record.core_type = kernel.core_type;
    record.arguments = task.arguments;
    if (task.name == NONE)
        std::memcpy(record.name, kernel.name, TASK_NAME_BYTES);
    else
        std::strncpy(record.name, transcript.names[task.name].c_str(), TASK_NAME_BYTES - 1);
    const std::uint64_t request = ++requests_;
    Packet packet(FABRIC_BLOCK, request);
    packet.add(record);
    BlockRecord part{};
    part.launch = static_cast<std::uint32_t>(launch_);
    part.gang = static_cast<std::uint32_t>(job.gang);
    part.block = job.block;
    part.of_blocks = job.of_blocks;
    part.members = job.members;
    if (look_) {
        if (job.assignment >= actions_.size())
            actions_.resize(job.assignment + 1);
        actions_[job.assignment].request = request;
        actions_[job.assignment].actions.clear();
        part.actions = reinterpret_cast<std::uintptr_t>(&actions_[job.assignment]);
    }
    packet.add(part);
    for (std::uint32_t i = 0; i < task.arguments; i++)
        packet.add(value_of(job.unit, transcript.arguments[task.first_argument + i]));
    const auto &bytes = packet.finish();
    if (job.unit == replay_.unit())
        replay_.dispatched(scheduler_.pes()[job.pe], bytes, [&] { return ranges_of(job.unit); });
    platform_.dispatched(platform_.self, scheduler_.pes()[job.pe]);
    platform_.send(platform_.self, node_, scheduler_.pes()[job.pe], bytes.data(), bytes.size(), 0);
    Pe &pe = pes_[job.pe];
    if (timed_)
        note_dispatched(job);
    // Vector PEs of a mixed task count as blocks of their own.
    const std::uint32_t block =
        task.blocks > 1 ? job.block / std::max(1u, job.of_blocks / task.blocks) : 0;
    pe.sent.push_back({request, job.gang, job.assignment, job.unit, block, pe.last});
    if (pe.sent.size() == 1)
        pe.watchdog.start(timeout_ps_);
}

bool Execution::is_true(std::uint32_t unit, Outcome &problem) const {
    const kl_predicate &predicate =
        scheduler_.transcript_of(unit).predicates[scheduler_.node(unit).predicate];
    const std::uint64_t bytes = tasks::bytes_of_dtype(predicate.dtype);
    const std::uint64_t address = value_of(unit, {predicate.element * bytes, predicate.tensor, 0});
    const kl_rows rows = {1, bytes, bytes, bytes};
    unsigned char element[8] = {};
    kl_fault fault{};
    if (platform_.load(platform_.self, FIRST_PE, element, address, &rows, &fault))
        return holds(predicate, element);
    problem = Outcome::failure(KL_STATUS_OUT_OF_BOUNDS,
                               text_of("%s: its predicate is at 0x%llx, which is not mapped",
                                       name_of_unit(unit).c_str(), (unsigned long long)address),
                               address);
    return false;
}

void Execution::decide() {
    const std::uint32_t unit = scheduler_.undecided();
    Outcome problem;
    const bool execute = is_true(unit, problem);
    if (!problem.ok())
        return fail(std::move(problem));
    scheduler_.decide(unit, execute);
    if (timed_ && !execute) {
        times_.last = Times::Last::DECIDED;
        times_.last_of = unit;
    }
    note_ready(unit);
}

void Execution::submit() {
    const std::uint32_t before = order_->submitted();
    order_->submit();
    note_submitted(before);
    note_ready(NONE);
    times_.last = Times::Last::SUBMITTED;
    times_.last_of = before;
}

void Execution::respond_with(const Outcome &outcome) {
    const std::uint64_t request = request_;
    forget();
    tell_idle();
    if (!keeps_launch_)
        graph_.reset();
    respond(platform_, node_, host_, FABRIC_LAUNCH, request, outcome);
}

} // namespace kernloom::control
