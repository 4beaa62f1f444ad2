// The host builds and uploads all tasks; they are executed in order when the last one has arrived.
#include "graph_order.hpp"
#include "kernloom/fabric.hpp"
#include "runtime.hpp"

namespace kernloom::control {

namespace {

class HostGraph final : public Runtime {
  public:
    HostGraph(Dispatcher &dispatcher, const Settings &settings)
        : dispatcher_(dispatcher), most_(graph_tasks(settings)) {
    }

    const char *name() const override {
        return "hostgraph";
    }

    std::uint64_t flags() const override {
        return RUNTIME_HOST_BUILDS;
    }

    void begin(std::size_t tasks) override {
        tasks_ = tasks;
        if (tasks > most_)
            return dispatcher_.refuse(
                text_of("the graph has %zu tasks, and there is room for %llu (runtime.graph.tasks)",
                        tasks, (unsigned long long)most_));
        if (tasks)
            dispatcher_.dispatch(0);
        else
            dispatcher_.finish();
    }

    void completed(std::size_t task) override {
        if (task + 1 < tasks_)
            dispatcher_.dispatch(task + 1);
        else
            dispatcher_.finish();
    }

    void elapsed() override {
    }

  private:
    Dispatcher &dispatcher_;
    std::uint64_t most_;
    std::size_t tasks_ = 0;
};

} // namespace

std::unique_ptr<Runtime> make_runtime(Dispatcher &dispatcher, const Settings &settings) {
    return std::make_unique<HostGraph>(dispatcher, settings);
}

std::unique_ptr<Order> make_order(const Settings &settings) {
    return std::make_unique<GraphOrder>(
        GraphLimits{graph_tasks(settings), graph_heap(settings), graph_edges(settings)});
}

} // namespace kernloom::control
