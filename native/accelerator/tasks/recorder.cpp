#include "recorder.hpp"

#include <algorithm>

namespace kernloom::tasks {

namespace {

using Number = unsigned long long;

} // namespace

Recorder::Recorder(const LaunchView &launch, const Machine &machine, const Limits &limits,
                   Transcript &transcript)
    : launch_(launch), machine_(machine), limits_(limits), transcript_(transcript),
      layouts_(transcript), shapes_(layouts_) {
    transcript.tasks.clear();
    transcript.arguments.clear();
    transcript.regions.clear();
    transcript.layouts.clear();
    transcript.dimensions.clear();
    transcript.after.clear();
    transcript.predicates.clear();
    transcript.scopes.clear();
    transcript.tensors.clear();
    transcript.names.clear();
    transcript.graphs.clear();
    for (const std::uint64_t bytes : launch.tensor_bytes)
        transcript.tensors.push_back({bytes, NONE, 0});
    transcript.launch_tensors = static_cast<std::uint32_t>(launch.tensor_bytes.size());
    transcript.scopes.push_back({NONE, 0, 0, 0});
    open_.push_back({0, KL_SCOPE_DERIVED});
    first_tensor_ = transcript.launch_tensors;
}

Recorder::Recorder(const LaunchView &launch, const Machine &machine, const Limits &limits,
                   RecordedGraph &graph, const Recorder &outer, std::uint32_t tasks_before,
                   std::uint32_t tensors_before)
    : Recorder(launch, machine, limits, graph.body) {
    graph_ = &graph;
    outer_ = &outer;
    first_task_ = OF_GRAPHS + tasks_before;
    first_tensor_ = OF_GRAPHS + tensors_before;
}

bool Recorder::refuse(std::uint32_t status, const std::string &detail) {
    std::string name = "dummy";
    if (submission_ && submission_->name)
        name = submission_->name;
    else if (submission_ && submission_->kernel < launch_.kernels.size())
        name = launch_.kernels[submission_->kernel].name;
    if (!is_printable(name))
        std::replace_if(
            name.begin(), name.end(),
            [](char c) {
                return !is_printable({&c, 1});
            },
            '?');
    std::string text = text_of("task %zu '%.100s'", transcript_.tasks.size(), name.c_str());
    if (graph_)
        text += text_of(" of graph '%.100s'", graph_->name.c_str());
    problem_ = Outcome::failure(status, text + ": " + detail);
    return false;
}

Task Recorder::new_task() const {
    Task task{};
    task.kernel = KL_NO_KERNEL;
    task.vector_kernel = KL_NO_KERNEL;
    task.first_argument = static_cast<std::uint32_t>(transcript_.arguments.size());
    task.first_region = static_cast<std::uint32_t>(transcript_.regions.size());
    task.first_after = static_cast<std::uint32_t>(transcript_.after.size());
    task.flags = open_.back().kind == KL_SCOPE_MANUAL ? TASK_MANUAL : 0;
    task.blocks = 1;
    task.of_blocks = 1;
    task.predicate = NONE;
    task.scope = open_.back().scope;
    task.name = NONE;
    return task;
}

kl_task Recorder::submit(kl_submission &submission, std::uint64_t &executed) {
    const auto number = static_cast<std::uint32_t>(transcript_.tasks.size());
    submission_ = &submission;
    if (!check_submission(submission, launch_.kernels, machine_, problem_)) {
        refuse(problem_.status, problem_.detail);
        return 0;
    }
    if (!check_room() || !count(executions_of(submission), executed))
        return 0;
    Task task = new_task();
    task.kernel = submission.kernel;
    if (submission.vectors) {
        task.vector_kernel = submission.vector_kernel;
        task.vectors = static_cast<std::uint8_t>(submission.vectors);
    }
    if (submission.sync_start)
        task.flags |= TASK_SYNC_START;
    if (submission.blocks > 1) {
        task.blocks = submission.blocks;
        task.of_blocks = submission.blocks;
    } else if (submission.of_blocks) {
        task.block = submission.block;
        task.of_blocks = submission.of_blocks;
    }
    if (submission.name)
        task.name = name_place(submission.name);
    if (!add_arguments(number) || (submission.after_count && !add_after(number)))
        return 0;
    if (submission.predicate)
        task.predicate = static_cast<std::uint32_t>(transcript_.predicates.size() - 1);
    task.arguments = static_cast<std::uint16_t>(submission.arguments_count);
    task.regions = static_cast<std::uint16_t>(transcript_.regions.size() - task.first_region);
    task.after = static_cast<std::uint16_t>(transcript_.after.size() - task.first_after);
    transcript_.tasks.push_back(task);
    submission_ = nullptr;
    return handle(number);
}

// Places are numbers of 32 bits.
bool Recorder::check_room() {
    const std::uint64_t most = std::max(
        {transcript_.arguments.size(), transcript_.regions.size(), transcript_.after.size()});
    return most < OF_GRAPHS ||
           refuse(KL_STATUS_OUT_OF_MEMORY, text_of("all tasks together have too many arguments or "
                                                   "dependencies by handle: there is room for %u",
                                                   OF_GRAPHS));
}

bool Recorder::count(std::uint64_t executions, std::uint64_t &executed) {
    if (executions > limits_.tasks || executed > limits_.tasks - executions) [[unlikely]]
        return refuse(KL_STATUS_OUT_OF_MEMORY,
                      text_of("with its %llu executions the orchestration submits more than %llu "
                              "tasks (%s)",
                              static_cast<Number>(executions), static_cast<Number>(limits_.tasks),
                              limits_.tasks_key));
    executed += executions;
    return true;
}

// Heaps are refused with the size that is enough, which must be a number.
bool Recorder::add_bytes(std::uint64_t bytes) {
    if (bytes > MOST_OUTPUT_BYTES || output_bytes_ > MOST_OUTPUT_BYTES - bytes) [[unlikely]]
        return refuse(KL_STATUS_OUT_OF_MEMORY,
                      text_of("with its output of %llu bytes all outputs have more than %llu, and "
                              "no heap does (%s)",
                              static_cast<Number>(bytes), static_cast<Number>(MOST_OUTPUT_BYTES),
                              limits_.heap_key));
    output_bytes_ += (bytes + HEAP_ALIGNMENT - 1) / HEAP_ALIGNMENT * HEAP_ALIGNMENT;
    return true;
}

std::uint32_t Recorder::name_place(const char *name) {
    if (last_name_ != NONE && transcript_.names[last_name_] == name)
        return last_name_;
    const auto [known, added] =
        names_.emplace(name, static_cast<std::uint32_t>(transcript_.names.size()));
    if (added)
        transcript_.names.emplace_back(name);
    return last_name_ = known->second;
}

void Recorder::barrier() {
    Task task = new_task();
    task.flags |= TASK_BARRIER;
    transcript_.tasks.push_back(task);
}

bool Recorder::begin_scope(std::uint32_t kind) {
    if (kind > KL_SCOPE_MANUAL) {
        problem_ = Outcome::failure(KL_STATUS_INVALID,
                                    text_of("after %zu tasks: there is no kind %u of scopes",
                                            transcript_.tasks.size(), kind));
        return false;
    }
    const auto scope = static_cast<std::uint32_t>(transcript_.scopes.size());
    transcript_.scopes.push_back({open_.back().scope, static_cast<std::uint32_t>(open_.size()),
                                  static_cast<std::uint32_t>(transcript_.tasks.size()), NONE});
    open_.push_back({scope, kind});
    return true;
}

bool Recorder::end_scope() {
    if (open_.size() == 1) {
        problem_ = Outcome::failure(
            KL_STATUS_INVALID, text_of("after %zu tasks%s%.100s%s: a scope ends that did not begin",
                                       transcript_.tasks.size(), graph_ ? " of graph '" : "",
                                       graph_ ? graph_->name.c_str() : "", graph_ ? "'" : ""));
        return false;
    }
    transcript_.scopes[open_.back().scope].end =
        static_cast<std::uint32_t>(transcript_.tasks.size());
    open_.pop_back();
    return true;
}

void Recorder::finish() {
    transcript_.scopes[0].end = static_cast<std::uint32_t>(transcript_.tasks.size());
}

kl_task Recorder::submit_graph(kl_graph graph, const kl_tensor *tensors,
                               const std::uint64_t *values, std::uint64_t &executed) {
    const auto number = static_cast<std::uint32_t>(transcript_.tasks.size());
    // Refusals name the graph.
    kl_submission named{};
    named.kernel = KL_NO_KERNEL;
    submission_ = &named;
    if (graph >= transcript_.graphs.size()) {
        refuse(KL_STATUS_INVALID, text_of("there is no recorded graph %u: there are %zu", graph,
                                          transcript_.graphs.size()));
        return 0;
    }
    const RecordedGraph &recorded = transcript_.graphs[graph];
    named.name = recorded.name.c_str();
    const std::uint32_t launch = transcript_.launch_tensors;
    const auto given_values = static_cast<std::uint32_t>(launch_.values.size());
    if (launch + std::uint64_t{given_values} >= UINT16_MAX) {
        refuse(KL_STATUS_UNSUPPORTED, "the launch has too many arguments for recorded graphs");
        return 0;
    }
    if (!check_room() || !count(std::max<std::uint64_t>(recorded.body.executions, 1), executed) ||
        !add_bytes(recorded.heap.bytes))
        return 0;
    Task task = new_task();
    task.kernel = graph;
    task.flags |= TASK_GRAPH;
    Argument *const arguments = transcript_.arguments.add(launch + given_values);
    for (std::uint32_t i = 0; i < launch; i++) {
        std::uint32_t tensor = i;
        std::string problem;
        if (tensors && !find_tensor(tensors[i], tensor, problem)) {
            refuse(KL_STATUS_UNKNOWN_ADDRESS, text_of("tensor %u: ", i) + problem);
            return 0;
        }
        if (transcript_.tensors[tensor].bytes < recorded.needs[i]) {
            refuse(KL_STATUS_OUT_OF_BOUNDS,
                   text_of("tensor %u instead of %u has %llu bytes, and the graph uses %llu",
                           tensors[i], i, static_cast<Number>(transcript_.tensors[tensor].bytes),
                           static_cast<Number>(recorded.needs[i])));
            return 0;
        }
        arguments[i] = {0, tensor, 0};
    }
    for (std::uint32_t i = 0; i < given_values; i++)
        arguments[launch + i] = {values ? values[i] : launch_.values[i], VALUE, 0};
    task.arguments = static_cast<std::uint16_t>(launch + given_values);
    const auto outside = static_cast<std::uint32_t>(recorded.outside.size());
    Region *const regions = transcript_.regions.add(outside);
    for (std::uint32_t i = 0; i < outside; i++) {
        regions[i] = recorded.outside[i];
        regions[i].tensor = arguments[regions[i].tensor].tensor;
        regions[i].task = number;
    }
    task.regions = static_cast<std::uint16_t>(outside);
    if (recorded.heap.bytes) {
        const auto own = static_cast<std::uint32_t>(transcript_.tensors.size());
        transcript_.tensors.push_back({recorded.heap.bytes, number, open_.back().scope});
        transcript_.arguments.push_back({0, own, 0});
        task.arguments++;
    }
    transcript_.tasks.push_back(task);
    submission_ = nullptr;
    return handle(number);
}

} // namespace kernloom::tasks
