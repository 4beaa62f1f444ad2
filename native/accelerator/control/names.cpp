// What messages call the tasks of a launch.
#include "execution.hpp"

namespace kernloom::control {

tasks::TaskPlace Execution::place_of(std::uint32_t unit) const {
    const std::uint32_t task = scheduler_.task_of(unit);
    return {task, scheduler_.is_graph(task) ? scheduler_.place_in_graph(unit) : NONE};
}

std::string Execution::name_of_place(tasks::TaskPlace place) const {
    const Task &submitted = transcript_->tasks[place.task];
    const bool graph = submitted.flags & tasks::TASK_GRAPH;
    if (graph && place.node == NONE)
        return text_of("task %u '%.47s'", place.task,
                       transcript_->graphs[submitted.kernel].name.c_str());
    const Transcript &transcript =
        graph ? transcript_->graphs[submitted.kernel].body : *transcript_;
    const Task &task = graph ? transcript.tasks[place.node] : submitted;
    const char *const name = task.name != NONE               ? transcript.names[task.name].c_str()
                             : task.kernel < kernels_.size() ? kernels_[task.kernel].name
                                                             : "dummy";
    return graph ? text_of("task %u '%.47s' (number %u of its graph)", place.task, name, place.node)
                 : text_of("task %u '%.47s'", place.task, name);
}

std::string Execution::name_of_unit(std::uint32_t unit) const {
    return name_of_place(place_of(unit));
}

} // namespace kernloom::control
