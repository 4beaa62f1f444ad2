// What tasks are submitted with: values, regions of tensors, outputs, predicates, and the tasks
// that they wait for.
#include "recorder.hpp"

#include <algorithm>

namespace kernloom::tasks {

namespace {

using Number = unsigned long long;

} // namespace

bool Recorder::refuse_argument(std::uint32_t status, std::uint32_t argument,
                               const std::string &detail) {
    if (argument == Shapes::PREDICATE)
        return refuse(status, "predicate: " + detail);
    return refuse(status, text_of("argument %u: ", argument) + detail);
}

const Shapes::Known *Recorder::find_shape(const kl_region &region, bool is_new,
                                          std::uint32_t place) {
    const Shapes::Known *const known = shapes_.find(region, is_new, place, problem_);
    if (!known) [[unlikely]]
        refuse_argument(problem_.status, place, problem_.detail);
    return known;
}

bool Recorder::add_arguments(std::uint32_t task) {
    const kl_submission &given = *submission_;
    const std::uint32_t count = given.arguments_count;
    Argument *const arguments = transcript_.arguments.add(count);
    Region *const regions = transcript_.regions.add(count + 1);
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < count; i++) {
        kl_task_argument &one = given.arguments[i];
        if (one.type != KL_ARGUMENT_TENSOR) {
            if (!add_value(one, i, arguments[i]))
                return false;
            continue;
        }
        Region &region = regions[used];
        if (one.access == KL_ACCESS_OUT ? !add_output(one, i, task, arguments[i], region)
                                        : !add_tensor(one, i, arguments[i], region))
            return false;
        region.task = task;
        region.access = static_cast<std::uint8_t>(one.access);
        region.dtype = static_cast<std::uint8_t>(one.region.dtype);
        region.argument = static_cast<std::uint16_t>(i);
        used++;
    }
    if (given.predicate) {
        if (!add_predicate(task, regions[used]))
            return false;
        used++;
    }
    transcript_.regions.truncate(transcript_.regions.size() - (count + 1 - used));
    return true;
}

bool Recorder::add_value(const kl_task_argument &given, std::uint32_t place, Argument &argument) {
    argument = {given.bits, VALUE, 0};
    if (given.type == KL_ARGUMENT_VALUE)
        return true;
    if (given.type != KL_ARGUMENT_LAUNCH_VALUE)
        return refuse_argument(KL_STATUS_INVALID, place,
                               text_of("there is no type %u of arguments", given.type));
    if (given.bits >= launch_.values.size())
        return refuse_argument(KL_STATUS_INVALID, place,
                               text_of("there is no value %llu: the launch has %zu",
                                       static_cast<Number>(given.bits), launch_.values.size()));
    if (graph_)
        argument.tensor = LAUNCH_VALUE;
    else
        argument.bits = launch_.values[given.bits];
    return true;
}

bool Recorder::find_tensor(kl_tensor tensor, std::uint32_t &place, std::string &problem) const {
    const std::uint32_t launch = transcript_.launch_tensors;
    place = tensor;
    if (tensor < launch) [[likely]]
        return true;
    const auto tensors = static_cast<std::uint32_t>(transcript_.tensors.size());
    if (tensor >= first_tensor_ && tensor - first_tensor_ < tensors - launch) {
        place = tensor - first_tensor_ + launch;
        if (transcript_.scopes[transcript_.tensors[place].scope].end == NONE ||
            transcript_.tensors[place].scope == 0) [[likely]]
            return true;
        problem = text_of("tensor %u died with its scope", tensor);
    } else if (outer_ && tensor < OF_GRAPHS) {
        problem = tensor < outer_->transcript_.tensors.size()
                      ? text_of("tensor %u is an output of a task outside of the graph", tensor)
                      : text_of("there is no tensor %u", tensor);
    } else if (tensor >= OF_GRAPHS) {
        problem = text_of("tensor %u belongs to a recorded graph, or does not exist", tensor);
    } else {
        problem = text_of("there is no tensor %u: there are %u", tensor, tensors);
    }
    return false;
}

bool Recorder::add_tensor(const kl_task_argument &given, std::uint32_t place, Argument &argument,
                          Region &region) {
    std::string problem;
    std::uint32_t tensor;
    if (given.access >= KL_ACCESSES)
        return refuse_argument(KL_STATUS_INVALID, place,
                               text_of("there is no access %u", given.access));
    if (!find_tensor(given.region.tensor, tensor, problem))
        return refuse_argument(KL_STATUS_UNKNOWN_ADDRESS, place, problem);
    const Shapes::Known *const known = find_shape(given.region, false, place);
    if (!known)
        return false;
    const std::uint64_t bytes = transcript_.tensors[tensor].bytes;
    std::uint64_t begin, end, origin;
    const bool overflows = __builtin_mul_overflow(given.region.offset, known->item, &begin) ||
                           __builtin_add_overflow(begin, known->span, &end);
    if (overflows || end > bytes) [[unlikely]]
        return refuse_argument(
            KL_STATUS_OUT_OF_BOUNDS, place,
            overflows ? text_of("its region begins at element %llu of tensor %u, which has %llu "
                                "bytes",
                                static_cast<Number>(given.region.offset), given.region.tensor,
                                static_cast<Number>(bytes))
                      : text_of("its region ends at byte %llu of tensor %u, which has %llu bytes",
                                static_cast<Number>(end), given.region.tensor,
                                static_cast<Number>(bytes)));
    if (__builtin_mul_overflow(given.origin, known->item, &origin) || origin > bytes) [[unlikely]]
        return refuse_argument(
            KL_STATUS_OUT_OF_BOUNDS, place,
            text_of("its address is that of element %llu of tensor %u, which has %llu bytes",
                    static_cast<Number>(given.origin), given.region.tensor,
                    static_cast<Number>(bytes)));
    argument = {origin, tensor, 0};
    region.tensor = tensor;
    region.begin = begin;
    region.layout = known->layout;
    return true;
}

bool Recorder::add_output(kl_task_argument &given, std::uint32_t place, std::uint32_t task,
                          Argument &argument, Region &region) {
    const Shapes::Known *const known = find_shape(given.region, true, place);
    if (!known || !add_bytes(known->span))
        return false;
    const auto tensor = static_cast<std::uint32_t>(transcript_.tensors.size());
    transcript_.tensors.push_back({known->span, task, open_.back().scope});
    given.region.tensor = first_tensor_ + (tensor - transcript_.launch_tensors);
    argument = {0, tensor, 0};
    region.tensor = tensor;
    region.begin = 0;
    region.layout = known->layout;
    return true;
}

bool Recorder::find_task(kl_task task, std::uint32_t tasks, std::uint32_t &place,
                         std::string &problem) const {
    place = task - first_task_;
    if (task >= first_task_ && place < tasks)
        return true;
    if (outer_ && task < OF_GRAPHS && task > 0 && task <= outer_->transcript_.tasks.size())
        problem = text_of("it waits for task %u, which is outside of the graph", task - 1);
    else if (task >= OF_GRAPHS && !(outer_ && task >= first_task_))
        problem = "it waits for a task of a recorded graph, which only tasks of that graph can";
    else
        problem = text_of("it waits for task %u, which has not been submitted",
                          task < first_task_ ? task : place);
    return false;
}

bool Recorder::add_after(std::uint32_t task) {
    const kl_submission &given = *submission_;
    if (!given.after)
        return refuse(KL_STATUS_INVALID, "the tasks that it waits for are missing");
    if (given.after_count > UINT16_MAX)
        return refuse(KL_STATUS_INVALID, text_of("it waits for %u tasks, and a task may wait for "
                                                 "at most %u by handle",
                                                 given.after_count, unsigned{UINT16_MAX}));
    if (given.after_count > limits_.edges - std::min(limits_.edges, transcript_.after.size()))
        return refuse(KL_STATUS_OUT_OF_MEMORY,
                      text_of("with it tasks wait for more than %llu others by handle (%s)",
                              static_cast<Number>(limits_.edges), limits_.edges_key));
    for (std::uint32_t i = 0; i < given.after_count; i++) {
        std::string problem;
        std::uint32_t place;
        if (!given.after[i])
            continue;
        if (!find_task(given.after[i], task, place, problem))
            return refuse(KL_STATUS_INVALID, problem);
        transcript_.after.push_back(place);
    }
    return true;
}

bool Recorder::add_predicate(std::uint32_t task, Region &region) {
    const kl_predicate &given = *submission_->predicate;
    if (given.comparison >= KL_COMPARISONS)
        return refuse_argument(KL_STATUS_INVALID, Shapes::PREDICATE,
                               text_of("there is no comparison %u", given.comparison));
    kl_task_argument element{};
    element.access = KL_ACCESS_IN;
    element.origin = given.element;
    element.region.tensor = given.tensor;
    element.region.dtype = given.dtype;
    element.region.offset = given.element;
    Argument argument;
    if (!add_tensor(element, Shapes::PREDICATE, argument, region))
        return false;
    region.task = task;
    region.access = KL_ACCESS_IN;
    region.dtype = static_cast<std::uint8_t>(given.dtype);
    region.argument = NO_ARGUMENT;
    transcript_.predicates.push_back(given);
    transcript_.predicates.back().tensor = argument.tensor;
    return true;
}

} // namespace kernloom::tasks
