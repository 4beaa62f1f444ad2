#include "control.hpp"

namespace kernloom::control {

Control::Control(const kl_platform &platform, kl_node node, const char *settings)
    : platform_(platform), node_(node), timeout_ps_(answer_timeout_ps(Settings(settings))),
      watchdog_(platform, node, WATCHDOG), runtime_(make_runtime(*this, Settings(settings))),
      execution_(platform, node, settings, make_order(Settings(settings)), requests_) {
}

void Control::receive(const kl_delivery &delivery) {
    Reader reader(delivery.message, delivery.bytes);
    kl_header header{};
    if (delivery.from.kind == KL_NODE_PE)
        return execution_.awaits_pes() ? execution_.answered(delivery) : answered(delivery);
    if (delivery.damaged || !reader.take(header))
        return respond(platform_, node_, delivery.from, 0, 0,
                       Outcome::failure(KL_STATUS_DAMAGED, text_of("%s received a damaged message",
                                                                   name_of(node_).c_str())));
    if (header.kind == FABRIC_SUBMIT || header.kind == FABRIC_LAUNCH) {
        // What an earlier submission still does is of no interest: its host has given up.
        execution_.forget();
        running_ = {};
        watchdog_.stop();
        submission_ = 0;
        return header.kind == FABRIC_SUBMIT ? submit(delivery, header, reader)
                                            : execution_.launch(delivery, header, reader);
    }
    if (header.kind == FABRIC_DOCUMENT)
        return execution_.document(delivery, header, reader);
    Outcome outcome;
    if (header.kind == FABRIC_DESCRIBE)
        outcome = {KL_STATUS_OK, runtime_->flags(), runtime_->name()};
    else
        outcome = Outcome::failure(KL_STATUS_INVALID, text_of("%s knows no request of kind %u",
                                                              name_of(node_).c_str(), header.kind));
    respond(platform_, node_, delivery.from, header.kind, header.request, outcome);
}

void Control::submit(const kl_delivery &delivery, const kl_header &header, Reader &reader) {
    SubmitRecord message{};
    std::vector<TaskRecord> records;
    std::vector<std::uint64_t> arguments;
    std::uint64_t needed = 0;
    const bool whole = reader.take(message) && reader.take_all(records, message.tasks) &&
                       reader.take_all(arguments, message.arguments);
    for (const TaskRecord &record : records)
        needed += record.arguments;
    submitter_ = delivery.from;
    submission_ = header.request;
    tasks_.clear();
    idle_since_ps_ = platform_.now(platform_.self);
    if (!whole || needed != arguments.size())
        return refuse("a submission is cut short");
    std::size_t used = 0;
    for (const TaskRecord &record : records) {
        Task task;
        task.record = record;
        task.arguments.assign(arguments.begin() + static_cast<std::ptrdiff_t>(used),
                              arguments.begin() +
                                  static_cast<std::ptrdiff_t>(used + record.arguments));
        used += record.arguments;
        tasks_.push_back(std::move(task));
    }
    runtime_->begin(tasks_.size());
}

// The first PE of this sip that a task can run on.
bool Control::choose(const TaskRecord &task, kl_node &pe) const {
    const kl_arch &arch = *platform_.arch;
    pe = {KL_NODE_PE, node_.sip, 0, 0};
    if (task.fixed) {
        pe = {KL_NODE_PE, task.sip, task.cube, task.pe};
        return task.sip < arch.sips && task.cube < arch.cubes && task.pe < arch.pes;
    }
    for (std::uint16_t i = 0; i < arch.pes; i++)
        if (task.core_type >= KL_CORE_TYPES || arch.core_types[i] == task.core_type) {
            pe.pe = i;
            return true;
        }
    return false;
}

void Control::dispatch(std::size_t task) {
    // The runtime may go on for a while after a failure.
    if (!submission_)
        return;
    running_ = {};
    running_.task = task;
    running_.begin_ps = platform_.now(platform_.self);
    const TaskRecord &record = tasks_[task].record;
    if (!choose(record, running_.pe))
        return refuse(text_of("no PE can run task %llu '%s': there is none of core type '%s' "
                              "(arch.topology.pes)",
                              (unsigned long long)record.id, record.name,
                              name_of_core_type(record.core_type)));
    running_.request = ++requests_;
    platform_.dispatched(platform_.self, running_.pe);
    // The doorbell of the PE.
    platform_.after(platform_.self, node_, platform_.arch->register_store_ps,
                    running_.request << TOKEN_BITS | STORED);
}

void Control::send() {
    const Task &task = tasks_[running_.task];
    Packet packet(FABRIC_RUN, running_.request);
    packet.add(task.record);
    packet.append(task.arguments.data(), task.arguments.size() * sizeof task.arguments[0]);
    const auto &bytes = packet.finish();
    platform_.send(platform_.self, node_, running_.pe, bytes.data(), bytes.size(), 0);
    watchdog_.start(timeout_ps_);
}

void Control::answered(const kl_delivery &delivery) {
    std::uint64_t request = 0;
    Outcome outcome;
    if (!running_.request || !same_node(delivery.from, running_.pe))
        return;
    if (delivery.damaged || !read_response(delivery, request, outcome)) {
        outcome = Outcome::failure(KL_STATUS_DAMAGED,
                                   text_of("%s received a damaged message of %s",
                                           name_of(node_).c_str(), name_of(delivery.from).c_str()));
        request = 0;
    }
    // A damaged request is answered without its number.
    if (request && request != running_.request)
        return;
    watchdog_.stop();
    running_.outcome = std::move(outcome);
    platform_.after(platform_.self, node_, platform_.arch->register_load_ps,
                    running_.request << TOKEN_BITS | LOADED);
}

// Tasks come one after the other: the end waits for all that is done.
void Control::tell_path() const {
    const std::uint64_t ended = running_.outcome.virtual_ps;
    const std::uint64_t started = ended - running_.outcome.value;
    const kl_stretch stretches[] = {
        {idle_since_ps_, running_.begin_ps, running_.pe, KL_STRETCH_SUBMIT, 0, "tasks"},
        {running_.begin_ps, started, running_.pe, KL_STRETCH_SCHEDULER, 0, "dispatch"},
        {started, ended, running_.pe, KL_STRETCH_TASK, 0, tasks_[running_.task].record.name},
        {ended, platform_.now(platform_.self), running_.pe, KL_STRETCH_SCHEDULER, 0, "complete"},
    };
    platform_.path(platform_.self, stretches, sizeof stretches / sizeof stretches[0]);
}

void Control::timer(std::uint64_t token) {
    const std::uint64_t kind = token & ((1 << TOKEN_BITS) - 1);
    if (kind == Execution::STEP || kind == Execution::PE_WATCHDOG)
        return execution_.timer(token);
    const bool current = running_.request && token >> TOKEN_BITS == running_.request;
    switch (kind) {
    case WATCHDOG:
        if (watchdog_.fired() && running_.request) {
            const TaskRecord &record = tasks_[running_.task].record;
            end(no_answer(platform_,
                          text_of("%s did not answer Run of task %llu '%s'",
                                  name_of(running_.pe).c_str(), (unsigned long long)record.id,
                                  record.name),
                          timeout_ps_, ANSWER_TIMEOUT_KEY));
        }
        return;
    case SUBMITTED:
        return runtime_->elapsed();
    case STORED:
        if (current)
            send();
        return;
    case LOADED:
        if (!current)
            return;
        running_.request = 0;
        if (running_.outcome.ok()) {
            tell_path();
            idle_since_ps_ = platform_.now(platform_.self);
            return runtime_->completed(running_.task);
        }
        return end(running_.outcome);
    }
}

void Control::after(std::uint64_t delay_ps) {
    platform_.after(platform_.self, node_, delay_ps, SUBMITTED);
}

void Control::finish() {
    end({});
}

void Control::refuse(std::string reason) {
    end(Outcome::failure(KL_STATUS_INVALID, std::move(reason)));
}

void Control::end(const Outcome &outcome) {
    running_.request = 0;
    watchdog_.stop();
    if (submission_)
        respond(platform_, node_, submitter_, FABRIC_SUBMIT, submission_, outcome);
    submission_ = 0;
}

} // namespace kernloom::control

namespace {

using kernloom::control::Control;

Control *control(void *state) {
    return static_cast<Control *>(state);
}

constexpr struct kl_program PROGRAM = {
    KL_PLATFORM_ABI,
    sizeof(struct kl_program),
    "control",
    KL_NODE_CONTROL,
    [](const kl_platform *platform, kl_node node, const char *settings) -> void * {
        return new Control(*platform, node, settings);
    },
    [](void *state, const kl_delivery *delivery) { control(state)->receive(*delivery); },
    [](void *state, std::uint64_t token) { control(state)->timer(token); },
    [](void *, std::uint64_t) {},
    [](void *state) { delete control(state); },
};

} // namespace

extern "C" __attribute__((visibility("default"))) const struct kl_program *kl_program(void) {
    return &PROGRAM;
}
