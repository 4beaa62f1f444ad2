#include "launch.hpp"

#include <algorithm>

namespace kernloom::host {

Launcher::Launcher(const kl_platform &platform, kl_node node, const Settings &settings,
                   Exchange &exchange, Tensors &tensors, Device &device, Programs &programs)
    : platform_(platform), exchange_(exchange), tensors_(tensors), device_(device),
      programs_(programs), code_(platform, node, {KL_NODE_PE, 0, 0, 0}),
      limits_(tasks::graph_limits(settings)), keep_edges_(wants_edges(settings)),
      ring_heap_(ring_heaps(settings)) {
}

Outcome Launcher::prepare(const std::vector<kl_launch_call> &calls,
                          const std::vector<kl_launch_argument> &arguments, const kl_node *pe,
                          Work &work) {
    // Before the clock of a sample starts.
    const Outcome described = describe();
    if (!described.ok())
        return described;
    std::size_t used = 0;
    for (const kl_launch_call &call : calls) {
        Outcome problem;
        const Function *function = programs_.find(call.kernel, problem);
        if (!function)
            return problem;
        const std::uint32_t count = call.arguments;
        if (count != function->arguments || count > arguments.size() - used)
            return Outcome::failure(KL_STATUS_WRONG_ARGUMENT_COUNT,
                                    text_of("kernel '%.200s' takes %u arguments, not %u",
                                            function->name.c_str(), function->arguments, count));
        for (std::size_t i = used; i < used + count; i++) {
            const kl_launch_argument argument = arguments[i];
            if (argument.kind != KL_ARGUMENT_KIND_BUFFER &&
                argument.kind != KL_ARGUMENT_KIND_SCALAR)
                return Outcome::failure(
                    KL_STATUS_INVALID,
                    text_of("argument %zu is of unknown kind %u", i - used, argument.kind));
            if (argument.kind == KL_ARGUMENT_KIND_BUFFER &&
                !tensors_.find(argument.bits, 0, problem))
                return problem;
            const std::uint64_t bits = argument.bits; // messages are packed
            work.arguments.push_back(bits);
        }
        used += count;
        TaskRecord task{};
        task.code = function->code;
        task.code_bytes = function->code_bytes;
        task.function = function->place;
        task.core_type = function->core_type;
        task.arguments = count;
        if (pe) {
            const std::uint32_t type = platform_.arch->core_types[pe->pe];
            if (function->core_type < KL_CORE_TYPES && function->core_type != type)
                return Outcome::failure(KL_STATUS_INVALID,
                                        text_of("kernel '%.200s' is for %s PEs, and %s is a %s PE",
                                                function->name.c_str(),
                                                name_of_core_type(function->core_type),
                                                name_of(*pe).c_str(), name_of_core_type(type)));
            task.fixed = 1;
            task.sip = pe->sip;
            task.cube = pe->cube;
            task.pe = pe->pe;
        }
        const std::size_t length =
            std::min<std::size_t>(function->name.size(), TASK_NAME_BYTES - 1);
        std::memcpy(task.name, function->name.data(), length);
        work.tasks.push_back(task);
    }
    if (used != arguments.size())
        return Outcome::failure(
            KL_STATUS_WRONG_ARGUMENT_COUNT,
            text_of("the calls take %zu arguments, not %zu", used, arguments.size()));
    return {};
}

// Asks the control program for its runtime, once.
Outcome Launcher::describe() {
    if (described_)
        return {};
    exchange_.begin();
    const std::uint64_t request = exchange_.next_request();
    Packet packet(FABRIC_DESCRIBE, request);
    exchange_.send(CONTROL, request, FABRIC_DESCRIBE, packet);
    const Outcome outcome = exchange_.wait().front().outcome;
    described_ = outcome.ok();
    host_builds_ = outcome.value & RUNTIME_HOST_BUILDS;
    return outcome;
}

Outcome Launcher::run(Work &work) {
    if (work.orchestrated)
        return run_orchestration(work);
    for (TaskRecord &task : work.tasks)
        task.id = ++tasks_;
    if (host_builds_)
        exchange_.submit(work.tasks.size() * platform_.arch->submit_ps);
    exchange_.begin();
    const std::uint64_t request = exchange_.next_request();
    Packet packet(FABRIC_SUBMIT, request);
    SubmitRecord submit{};
    submit.tasks = static_cast<std::uint32_t>(work.tasks.size());
    submit.arguments = static_cast<std::uint32_t>(work.arguments.size());
    packet.add(submit);
    packet.append(work.tasks.data(), work.tasks.size() * sizeof work.tasks[0]);
    packet.append(work.arguments.data(), work.arguments.size() * sizeof work.arguments[0]);
    exchange_.send(CONTROL, request, FABRIC_SUBMIT, packet);
    // The control program waits for each task for as long as the host for a message.
    Outcome outcome = exchange_.wait(work.tasks.size() + 2).front().outcome;
    add_nearest(outcome);
    return outcome;
}

void Launcher::add_nearest(Outcome &outcome) const {
    if (outcome.status == KL_STATUS_OUT_OF_BOUNDS && outcome.value)
        outcome.detail += ": the kernel reached " + tensors_.nearest(outcome.value);
    if (outcome.status == KL_STATUS_HAZARD && outcome.value)
        outcome.detail += " (" + tensors_.nearest(outcome.value) + ")";
}

} // namespace kernloom::host
