// Launches with an orchestration.
#include <algorithm>

#include "launch.hpp"
#include "orchestrator.hpp"

namespace kernloom::host {

namespace {

// As long as one block after the other may take: the control program says itself when a PE does not
// answer. How many blocks there are is not known here if the control program runs the
// orchestration.
constexpr std::uint64_t MOST_BLOCKS = 1 << 20;

std::uint64_t blocks_of(const tasks::Transcript &transcript) {
    std::vector<std::uint64_t> of_graphs;
    for (const tasks::RecordedGraph &graph : transcript.graphs)
        of_graphs.push_back(blocks_of(graph.body));
    std::uint64_t blocks = 0;
    for (const tasks::Task &task : transcript.tasks)
        blocks += task.flags & tasks::TASK_GRAPH ? of_graphs[task.kernel] : task.blocks;
    return blocks;
}

} // namespace

Outcome Launcher::prepare(std::uint64_t orchestration, const std::vector<kl_launch_call> &calls,
                          const std::vector<kl_launch_argument> &arguments, Work &work) {
    // Before the clock of a sample starts.
    Outcome outcome = describe();
    if (!outcome.ok())
        return outcome;
    const Function *function = programs_.find(orchestration, outcome);
    if (!function)
        return outcome;
    if (!function->orchestration)
        return Outcome::failure(KL_STATUS_INVALID,
                                text_of("'%.200s' is a kernel and no orchestration: it has no "
                                        "function kl_orchestrate",
                                        function->name.c_str()));
    work.orchestrated = true;
    work.launch.orchestration = {function->code, function->code_bytes, function->place};
    outcome = add_kernels(calls, work);
    if (outcome.ok())
        outcome = add_arguments(arguments, work);
    if (outcome.ok() && host_builds_)
        outcome = build(work);
    if (outcome.ok())
        outcome = reserve_heap(work);
    return outcome;
}

Outcome Launcher::add_kernels(const std::vector<kl_launch_call> &calls, Work &work) {
    for (const kl_launch_call &call : calls) {
        Outcome problem;
        const Function *function = programs_.find(call.kernel, problem);
        if (!function)
            return problem;
        if (function->orchestration)
            return Outcome::failure(
                KL_STATUS_INVALID,
                text_of("'%.200s' is an orchestration and no kernel", function->name.c_str()));
        if (call.arguments)
            return Outcome::failure(KL_STATUS_WRONG_ARGUMENT_COUNT,
                                    text_of("kernel '%.200s' of an orchestration gets its "
                                            "arguments from tasks, not from the launch",
                                            function->name.c_str()));
        // An orchestration finds kernels by their names.
        if (function->name.size() >= TASK_NAME_BYTES)
            return Outcome::failure(
                KL_STATUS_UNSUPPORTED,
                text_of("the name of kernel '%.200s' has %zu bytes, and one of an orchestration "
                        "has at most %u",
                        function->name.c_str(), function->name.size(), TASK_NAME_BYTES - 1));
        KernelRecord kernel{};
        kernel.code = {function->code, function->code_bytes, function->place};
        kernel.core_type = static_cast<std::uint8_t>(function->core_type);
        kernel.has_kinds = function->buffers != KL_UNKNOWN_KINDS;
        // No task has more arguments than have a bit here.
        kernel.arguments =
            static_cast<std::uint16_t>(std::min<std::uint32_t>(function->arguments, UINT16_MAX));
        kernel.buffers = static_cast<std::uint32_t>(function->buffers);
        std::memcpy(kernel.name, function->name.data(), function->name.size());
        work.kernels.push_back(kernel);
    }
    return {};
}

Outcome Launcher::add_arguments(const std::vector<kl_launch_argument> &arguments, Work &work) {
    tensor_names_.clear();
    for (std::size_t i = 0; i < arguments.size(); i++) {
        const kl_launch_argument argument = arguments[i];
        if (argument.kind == KL_ARGUMENT_KIND_SCALAR) {
            const std::uint64_t bits = argument.bits; // messages are packed
            work.values.push_back(bits);
            continue;
        }
        if (argument.kind != KL_ARGUMENT_KIND_BUFFER)
            return Outcome::failure(
                KL_STATUS_INVALID, text_of("argument %zu is of unknown kind %u", i, argument.kind));
        Outcome problem;
        const Tensor *tensor = tensors_.find(argument.bits, 0, problem);
        if (!tensor)
            return problem;
        tensor_names_.push_back(tensor->label);
        work.tensors.push_back({argument.bits, tensor->bytes - (argument.bits - tensor->address)});
    }
    return {};
}

// Runs the orchestration here and builds the graph of its tasks.
Outcome Launcher::build(Work &work) {
    Outcome outcome;
    void *symbol = code_.find(work.launch.orchestration, "the orchestration", outcome);
    kl_orchestrate_function function = nullptr;
    std::memcpy(&function, &symbol, sizeof symbol);
    if (!function)
        return outcome;
    std::vector<std::uint64_t> bytes;
    for (const TensorRecord &tensor : work.tensors)
        bytes.push_back(tensor.bytes);
    std::vector<tasks::KernelView> kernels;
    for (const KernelRecord &kernel : work.kernels)
        kernels.push_back(tasks::KernelView::of(kernel));
    tasks::Transcript transcript;
    outcome =
        tasks::record(function, {platform_.arch, bytes, work.values, kernels}, limits_, transcript);
    if (!outcome.ok())
        return outcome;
    const auto graph = std::make_shared<tasks::Graph>();
    outcome = tasks::build_graph(std::move(transcript), limits_, *graph,
                                 keep_edges_ ? &graph->reasons : nullptr);
    work.graph = graph;
    return outcome;
}

// Memory for outputs, on all PEs.
Outcome Launcher::reserve_heap(Work &work) {
    const std::uint64_t bytes = host_builds_ ? work.graph->heap.bytes : ring_heap_;
    Outcome problem;
    if (bytes > heap_bytes_) {
        if (Tensor *old = heap_ ? tensors_.find_start(heap_, problem) : nullptr)
            device_.release(*old);
        heap_ = heap_bytes_ = 0;
        std::vector<Answer> answers;
        const Tensor *heap =
            device_.place({bytes, 0, KL_POLICY_SHARD, "outputs of tasks", device_.all(), false},
                          problem, answers);
        if (!heap)
            return Outcome::failure(
                problem.status, text_of("no heap of %llu bytes for the outputs of tasks (%s): %s",
                                        (unsigned long long)bytes,
                                        host_builds_ ? "runtime.graph.heap" : "runtime.ring.heap",
                                        problem.detail.c_str()));
        heap_ = heap->address;
        heap_bytes_ = bytes;
    }
    work.launch.heap = heap_;
    return {};
}

Outcome Launcher::document(std::uint32_t kind, std::string &text) {
    documents_.push_back({tensor_names_, {}});
    exchange_.begin();
    const std::uint64_t request = exchange_.next_request();
    Packet packet(FABRIC_DOCUMENT, request);
    packet.add(DocumentRecord{kind, reinterpret_cast<std::uintptr_t>(&documents_.back())});
    exchange_.send(CONTROL, request, FABRIC_DOCUMENT, packet);
    const Outcome outcome = exchange_.wait().front().outcome;
    text = std::move(documents_.back().text);
    // A message that is late may still refer to it.
    if (outcome.status != KL_STATUS_NO_ANSWER)
        documents_.pop_back();
    return outcome;
}

Outcome Launcher::run_orchestration(Work &work) {
    LaunchRecord &launch = work.launch;
    launch.launch = ++launches_;
    launch.kernels = static_cast<std::uint32_t>(work.kernels.size());
    launch.tensors = static_cast<std::uint32_t>(work.tensors.size());
    launch.values = static_cast<std::uint32_t>(work.values.size());
    std::uint64_t bulk = 0;
    if (work.graph) {
        const tasks::Transcript &transcript = work.graph->transcript;
        std::uint64_t submissions = transcript.tasks.size();
        for (const tasks::RecordedGraph &graph : transcript.graphs)
            submissions += graph.body.tasks.size();
        exchange_.submit(submissions * platform_.arch->submit_ps);
        transfers_.push_back({work.graph});
        launch.graph = reinterpret_cast<std::uintptr_t>(&transfers_.back());
        bulk = work.graph->bytes();
    }
    exchange_.begin();
    const std::uint64_t request = exchange_.next_request();
    Packet packet(FABRIC_LAUNCH, request);
    packet.add(launch);
    packet.append(work.kernels.data(), work.kernels.size() * sizeof(KernelRecord));
    packet.append(work.tensors.data(), work.tensors.size() * sizeof(TensorRecord));
    packet.append(work.values.data(), work.values.size() * sizeof(std::uint64_t));
    exchange_.send(CONTROL, request, FABRIC_LAUNCH, packet, bulk);
    const std::uint64_t blocks = work.graph ? blocks_of(work.graph->transcript) : MOST_BLOCKS;
    Outcome outcome = exchange_.wait(blocks + 2).front().outcome;
    if (work.graph) {
        // A message that is late may still refer to it.
        transfers_.back().graph.reset();
        if (outcome.status != KL_STATUS_NO_ANSWER)
            transfers_.pop_back();
    }
    add_nearest(outcome);
    return outcome;
}

} // namespace kernloom::host
