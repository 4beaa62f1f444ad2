// Checks what an orchestration submits and writes it down.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "layouts.hpp"
#include "orchestrator.hpp"
#include "shapes.hpp"
#include "submission_check.hpp"
#include "transcript.hpp"

namespace kernloom::tasks {

// Writes a transcript, or the body of a recorded graph. A function that refuses something returns 0
// or false, and `problem` says why; nothing may be recorded after that.
class Recorder {
  public:
    Recorder(const LaunchView &launch, const Machine &machine, const Limits &limits,
             Transcript &transcript);
    // For a graph: tasks and tensors of all graphs before it have other numbers.
    Recorder(const LaunchView &launch, const Machine &machine, const Limits &limits,
             RecordedGraph &graph, const Recorder &outer, std::uint32_t tasks_before,
             std::uint32_t tensors_before);

    // `executed`: how many executions count already; those of the task are added.
    kl_task submit(kl_submission &submission, std::uint64_t &executed);
    kl_task submit_graph(kl_graph graph, const kl_tensor *tensors, const std::uint64_t *values,
                         std::uint64_t &executed);
    void barrier();
    bool begin_scope(std::uint32_t kind);
    bool end_scope();
    // The orchestration, or the graph, is complete.
    void finish();

    std::size_t open_scopes() const {
        return open_.size();
    }
    // Tasks before the innermost scope.
    std::uint32_t begin_of_scope() const {
        return transcript_.scopes[open_.back().scope].begin;
    }
    const Outcome &problem() const {
        return problem_;
    }
    Transcript &transcript() {
        return transcript_;
    }
    Layouts &layouts() {
        return layouts_;
    }

  private:
    // Numbers of tasks and tensors of recorded graphs begin here.
    static constexpr std::uint32_t OF_GRAPHS = 1u << 31;

    struct OpenScope {
        std::uint32_t scope;
        std::uint32_t kind;
    };

    bool refuse(std::uint32_t status, const std::string &detail);
    bool refuse_argument(std::uint32_t status, std::uint32_t argument, const std::string &detail);
    bool check_room();
    bool count(std::uint64_t executions, std::uint64_t &executed);
    bool add_bytes(std::uint64_t bytes);
    bool add_arguments(std::uint32_t task);
    bool add_tensor(const kl_task_argument &given, std::uint32_t place, Argument &argument,
                    Region &region);
    bool add_output(kl_task_argument &given, std::uint32_t place, std::uint32_t task,
                    Argument &argument, Region &region);
    bool add_value(const kl_task_argument &given, std::uint32_t place, Argument &argument);
    bool add_after(std::uint32_t task);
    bool add_predicate(std::uint32_t task, Region &region);
    const Shapes::Known *find_shape(const kl_region &region, bool is_new, std::uint32_t place);
    bool find_tensor(kl_tensor tensor, std::uint32_t &place, std::string &problem) const;
    bool find_task(kl_task task, std::uint32_t tasks, std::uint32_t &place,
                   std::string &problem) const;
    std::uint32_t name_place(const char *name);
    Task new_task() const;
    kl_task handle(std::uint32_t task) const {
        return first_task_ + task;
    }

    const LaunchView &launch_;
    const Machine &machine_;
    const Limits &limits_;
    Transcript &transcript_;
    Layouts layouts_;
    Shapes shapes_;
    const RecordedGraph *graph_ = nullptr; // whose body it is
    const Recorder *outer_ = nullptr;
    std::uint32_t first_task_ = 1;   // handle of task 0
    std::uint32_t first_tensor_ = 0; // number of the first output
    std::uint64_t output_bytes_ = 0; // of all outputs, each as in a heap
    Array<OpenScope> open_;
    std::unordered_map<std::string, std::uint32_t> names_;
    std::uint32_t last_name_ = NONE;
    const kl_submission *submission_ = nullptr; // that is being recorded
    Outcome problem_;
};

} // namespace kernloom::tasks
