#include "orchestrator.hpp"

#include <exception>
#include <memory>
#include <optional>

#include "kernloom/float_control.h"
#include "recorded_graph.hpp"
#include "recorder.hpp"

namespace kernloom::tasks {

namespace {

using Number = unsigned long long;

// Leaves an orchestration that does not stop by itself.
struct Stop {};

// A launch as its orchestration sees it: what it asks for goes into a transcript, or into the body
// of a recorded graph.
class Orchestrator : public kl_orchestrator {
  public:
    Orchestrator(const LaunchView &launch, const Limits &limits, Transcript &transcript)
        : kl_orchestrator{}, launch_(launch), limits_(limits), machine_(*launch.arch),
          outer_(launch, machine_, limits, transcript) {
        functions = &FUNCTIONS;
        tensor_bytes = launch.tensor_bytes.data();
        kl_orchestrator::values = launch.values.data();
        tensors_count = static_cast<std::uint32_t>(launch.tensor_bytes.size());
        values_count = static_cast<std::uint32_t>(launch.values.size());
        pes[KL_CORE_MATRIX] = machine_.pes[KL_CORE_MATRIX];
        pes[KL_CORE_VECTOR] = machine_.pes[KL_CORE_VECTOR];
        cubes = machine_.cubes;
    }

    Outcome run(kl_orchestrate_function orchestrate) {
        try {
            orchestrate(this);
        } catch (const Stop &) {
        } catch (const std::bad_alloc &) {
            fail(KL_STATUS_OUT_OF_MEMORY, "no memory for the tasks of the orchestration");
        } catch (const std::exception &problem) {
            fail(KL_STATUS_INVALID, text_of("the orchestration threw after %llu tasks: %.400s",
                                            static_cast<Number>(submitted_), problem.what()));
        } catch (...) {
            fail(KL_STATUS_INVALID, text_of("the orchestration threw something that is no "
                                            "std::exception after %llu tasks",
                                            static_cast<Number>(submitted_)));
        }
        if (failed())
            return problem_;
        if (graph_)
            fail(KL_STATUS_INVALID,
                 text_of("graph '%.100s' begins and does not end", graph_->name.c_str()));
        else if (outer_.open_scopes() > 1)
            fail(KL_STATUS_INVALID, text_of("a scope that began after %u tasks does not end",
                                            outer_.begin_of_scope()));
        outer_.finish();
        outer_.transcript().executions = executed_;
        return problem_;
    }

  private:
    static Orchestrator &of(kl_orchestrator *self) {
        return *static_cast<Orchestrator *>(self);
    }

    Recorder &recorder() {
        return graph_ ? *inner_ : outer_;
    }
    bool failed() const {
        return !problem_.ok();
    }
    void fail(std::uint32_t status, std::string detail) {
        if (!failed())
            problem_ = Outcome::failure(status, std::move(detail));
    }
    void fail(Outcome problem) {
        if (!failed() && !problem.ok())
            problem_ = std::move(problem);
    }

    // Counts a task, also after a failure: an orchestration that goes on and on is ended.
    bool count() {
        if (++submitted_ <= limits_.tasks) [[likely]]
            return !failed();
        return stop("submits", "tasks");
    }
    // The same for a barrier.
    bool count_execution() {
        if (executed_ >= limits_.tasks && !failed())
            return stop("submits", "tasks");
        executed_++;
        return count();
    }
    // The same for scopes and graphs.
    bool count_begin() {
        return ++begun_ <= limits_.tasks ? !failed() : stop("begins", "scopes and graphs");
    }
    bool stop(const char *does, const char *what) {
        fail(KL_STATUS_OUT_OF_MEMORY,
             text_of("the orchestration %s more than %llu %s (%s)", does,
                     static_cast<Number>(limits_.tasks), what, limits_.tasks_key));
        if (std::uncaught_exceptions() == 0)
            throw Stop{};
        return false;
    }

    kl_task submit(kl_submission &submission) {
        if (!count())
            return 0;
        const kl_task task = recorder().submit(submission, executed_);
        if (!task) [[unlikely]]
            fail(recorder().problem());
        return task;
    }

    void begin_graph(const char *name) {
        if (!count_begin())
            return;
        if (graph_)
            return fail(KL_STATUS_INVALID, text_of("graph '%.100s' begins inside graph '%.100s'",
                                                   name ? name : "", graph_->name.c_str()));
        if (name && !is_printable(name))
            return fail(KL_STATUS_INVALID, "the name of a graph has control characters");
        graph_ = std::make_unique<RecordedGraph>();
        graph_->name = name ? name : "";
        before_graph_ = executed_;
        inner_.emplace(launch_, machine_, limits_, *graph_, outer_, graph_tasks_, graph_tensors_);
    }

    void end_graph() {
        if (failed())
            return;
        if (!graph_)
            return fail(KL_STATUS_INVALID, "a graph ends that did not begin");
        if (inner_->open_scopes() > 1)
            return fail(KL_STATUS_INVALID,
                        text_of("a scope that began after %u tasks of graph '%.100s' does not end",
                                inner_->begin_of_scope(), graph_->name.c_str()));
        inner_->finish();
        graph_->body.executions = executed_ - before_graph_;
        graph_tasks_ += static_cast<std::uint32_t>(graph_->body.tasks.size());
        graph_tensors_ += static_cast<std::uint32_t>(graph_->body.tensors.size());
        inner_.reset();
        fail(finish_graph(*graph_, limits_, outer_.layouts()));
        outer_.transcript().graphs.push_back(std::move(*graph_));
        graph_.reset();
    }

    kl_task submit_graph(kl_graph graph, const kl_tensor *tensors, const std::uint64_t *values) {
        if (!count())
            return 0;
        if (graph_) {
            fail(KL_STATUS_INVALID, text_of("graph '%.100s' submits a graph, which only tasks "
                                            "outside of graphs can",
                                            graph_->name.c_str()));
            return 0;
        }
        const kl_task task = outer_.submit_graph(graph, tensors, values, executed_);
        if (!task)
            fail(outer_.problem());
        return task;
    }

    std::uint32_t find_kernel(const char *name) {
        for (std::uint32_t i = 0; name && i < launch_.kernels.size(); i++)
            if (launch_.kernels[i].name == name)
                return i;
        std::string known;
        for (const KernelView &kernel : launch_.kernels)
            known += (known.empty() ? "" : ", ") + std::string(kernel.name);
        fail(KL_STATUS_UNKNOWN_KERNEL, text_of("the launch has no kernel '%.100s'; it has: %.400s",
                                               name ? name : "", known.c_str()));
        return KL_NO_KERNEL;
    }

    static const kl_orchestrator_functions FUNCTIONS;

    const LaunchView &launch_;
    const Limits &limits_;
    const Machine machine_;
    Recorder outer_;
    std::unique_ptr<RecordedGraph> graph_; // that is being recorded
    std::optional<Recorder> inner_;
    Outcome problem_;
    std::uint64_t submitted_ = 0;    // also after a failure
    std::uint64_t executed_ = 0;     // those that count for Limits::tasks
    std::uint64_t before_graph_ = 0; // of these, those before the graph that is being recorded
    std::uint64_t begun_ = 0;        // scopes and graphs
    std::uint32_t graph_tasks_ = 0;  // of all graphs before
    std::uint32_t graph_tensors_ = 0;
};

const kl_orchestrator_functions Orchestrator::FUNCTIONS = {
    [](kl_orchestrator *self, kl_submission *submission) { return of(self).submit(*submission); },
    [](kl_orchestrator *self) {
        if (of(self).count_execution())
            of(self).recorder().barrier();
    },
    [](kl_orchestrator *self, std::uint32_t kind) {
        if (of(self).count_begin() && !of(self).recorder().begin_scope(kind))
            of(self).fail(of(self).recorder().problem());
    },
    [](kl_orchestrator *self) {
        if (!of(self).failed() && !of(self).recorder().end_scope())
            of(self).fail(of(self).recorder().problem());
    },
    [](kl_orchestrator *self, const char *name) {
        of(self).begin_graph(name);
        return static_cast<kl_graph>(of(self).outer_.transcript().graphs.size());
    },
    [](kl_orchestrator *self) { of(self).end_graph(); },
    [](kl_orchestrator *self, kl_graph graph, const kl_tensor *tensors,
       const std::uint64_t *values) { return of(self).submit_graph(graph, tensors, values); },
    [](kl_orchestrator *self, const char *name) { return of(self).find_kernel(name); },
    [](kl_orchestrator *self, const char *message) {
        of(self).fail(KL_STATUS_INVALID,
                      text_of("the orchestration failed: %.800s", message ? message : ""));
    },
};

} // namespace

Outcome record(kl_orchestrate_function orchestrate, const LaunchView &launch, const Limits &limits,
               Transcript &transcript) try {
    const kl_float_control control = kl_float_read();
    Outcome outcome = Orchestrator(launch, limits, transcript).run(orchestrate);
    const char *const changed = kl_float_restore(control);
    if (changed && outcome.ok())
        outcome = Outcome::failure(
            KL_STATUS_CHANGED_STATE,
            text_of("the orchestration changed %s and did not restore it", changed));
    return outcome;
} catch (const std::bad_alloc &) {
    return Outcome::failure(KL_STATUS_OUT_OF_MEMORY, "no memory for the tasks of the launch");
}

std::string name_of_task(const Transcript &transcript, std::span<const KernelView> kernels,
                         std::uint32_t task) {
    const Task &named = transcript.tasks[task];
    std::string name = named.flags & TASK_BARRIER ? "barrier" : "dummy";
    if (named.flags & TASK_GRAPH)
        name = transcript.graphs[named.kernel].name;
    else if (named.name != NONE)
        name = transcript.names[named.name];
    else if (named.kernel < kernels.size())
        name = kernels[named.kernel].name;
    return text_of("task %u '%.100s'", task, name.c_str());
}

} // namespace kernloom::tasks
