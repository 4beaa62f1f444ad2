// What the host can ask about the last launch, as JSON: its edges, and a task that runs again.
#include <algorithm>

#include "execution.hpp"

namespace kernloom::control {

namespace {

std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char character : text) {
        const auto code = static_cast<unsigned char>(character);
        if (character == '"' || character == '\\')
            (result += '\\') += character;
        else if (code < 0x20)
            result += text_of("\\u%04x", code);
        else
            result += character;
    }
    return result + '"';
}

// Lists with an item per line.
class Lines {
  public:
    explicit Lines(std::string &text) : text_(text) {
        text_ += '[';
    }
    std::string &next() {
        text_ += first_ ? "\n" : ",\n";
        first_ = false;
        return text_;
    }
    void end() {
        text_ += first_ ? "]" : "\n]";
    }

  private:
    std::string &text_;
    bool first_ = true;
};

} // namespace

std::string Execution::tensor_name(const Transcript &transcript, std::uint32_t tensor,
                                   const std::vector<std::string> &names) const {
    if (tensor < transcript.launch_tensors)
        return tensor < names.size() && !names[tensor].empty() ? names[tensor]
                                                               : text_of("tensor %u", tensor);
    const std::uint32_t producer = transcript.tensors[tensor].producer;
    std::uint32_t first = tensor;
    while (first > transcript.launch_tensors && transcript.tensors[first - 1].producer == producer)
        first--;
    return text_of("output %u of task %u", tensor - first, producer);
}

void Execution::write_tasks(const Transcript &transcript, std::string &text) const {
    Lines lines(text);
    for (std::uint32_t i = 0; i < transcript.tasks.size(); i++) {
        const Task &task = transcript.tasks[i];
        const bool graph = task.flags & tasks::TASK_GRAPH;
        const bool kernel = !graph && task.kernel < kernels_.size();
        const std::string name = graph               ? transcript.graphs[task.kernel].name
                                 : task.name != NONE ? transcript.names[task.name]
                                 : kernel            ? kernels_[task.kernel].name
                                 : task.flags & tasks::TASK_BARRIER ? "barrier"
                                                                    : "dummy";
        lines.next() += text_of("{\"task\": %u, \"name\": ", i) + quoted(name);
        if (graph)
            text += text_of(", \"graph\": %u", task.kernel);
        if (kernel)
            text += ", \"kernel\": " + quoted(kernels_[task.kernel].name);
        if (!graph && task.blocks > 1)
            text += text_of(", \"blocks\": %u", task.blocks);
        text += '}';
    }
    lines.end();
}

void Execution::write_edges(const Transcript &transcript, const tasks::Array<tasks::Edge> &edges,
                            const std::vector<std::string> &names, std::string &text) const {
    Lines lines(text);
    for (const tasks::Edge &edge : edges) {
        lines.next() += text_of("{\"from\": %u, \"to\": %u, \"kind\": \"%s\"", edge.from, edge.to,
                                tasks::name_of_edge(edge.kind));
        if (edge.tensor != NONE)
            text += ", \"tensor\": " + quoted(tensor_name(transcript, edge.tensor, names));
        if (edge.end > edge.begin)
            text += text_of(", \"bytes\": [%llu, %llu]", (unsigned long long)edge.begin,
                            (unsigned long long)edge.end);
        text += '}';
    }
    lines.end();
}

Outcome Execution::write_dependencies(const std::vector<std::string> &names,
                                      std::string &text) const {
    text = "{\"version\": 1,\n\"tasks\": ";
    write_tasks(*transcript_, text);
    text += ",\n\"edges\": ";
    write_edges(*transcript_, order_->edges(), names, text);
    text += ",\n\"graphs\": ";
    Lines lines(text);
    for (const tasks::RecordedGraph &graph : transcript_->graphs) {
        tasks::Edges edges;
        tasks::Array<tasks::Edge> reasons;
        tasks::Array<tasks::Reuse> reuses;
        tasks::Heap heap;
        // With just the room that they have, outputs are where they were placed first.
        tasks::place_outputs(graph.body, graph.heap.bytes, heap, reuses);
        tasks::Limits limits;
        limits.edges = UINT32_MAX;
        const Outcome derived = tasks::derive_edges(graph.body, reuses, limits, edges, &reasons);
        if (!derived.ok())
            return derived;
        lines.next() += "{\"name\": " + quoted(graph.name) + ", \"tasks\": ";
        write_tasks(graph.body, text);
        text += ", \"edges\": ";
        write_edges(graph.body, reasons, names, text);
        text += '}';
    }
    lines.end();
    text += "}\n";
    return {};
}

// Names of all units, each once.
void Execution::write_names(std::string &text) const {
    std::vector<std::string> names;
    for (std::uint32_t unit = 0; unit < scheduler_.units(); unit++)
        names.push_back(plain_name(unit));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    text = "{\"tasks\": " + std::to_string(transcript_->tasks.size()) + ", \"names\": ";
    Lines lines(text);
    for (const std::string &name : names)
        if (!name.empty())
            lines.next() += quoted(name);
    lines.end();
    text += "}\n";
}

std::string Execution::plain_name(std::uint32_t unit) const {
    if (scheduler_.is_graph(scheduler_.task_of(unit)) &&
        scheduler_.transcript_of(unit).tasks.empty())
        return "";
    const Task &task = scheduler_.node(unit);
    return task.name != NONE               ? scheduler_.transcript_of(unit).names[task.name]
           : task.kernel < kernels_.size() ? kernels_[task.kernel].name
                                           : "";
}

// Finds the unit that is to run again: by the number of its task, that and its number in its graph
// (3.1), or its name, the first one.
void Execution::begin_replay() {
    const std::string &wanted = replay_.wanted();
    std::uint32_t found = NONE;
    for (std::uint32_t unit = 0; unit < scheduler_.units() && found == NONE; unit++) {
        const tasks::TaskPlace place = place_of(unit);
        const std::string name = plain_name(unit);
        const std::string number = place.node == NONE ? std::to_string(place.task)
                                                      : text_of("%u.%u", place.task, place.node);
        if (!name.empty() && (wanted == name || wanted == number))
            found = unit;
    }
    std::uint64_t jobs = 0;
    if (found != NONE) {
        const Task &task = scheduler_.node(found);
        jobs = task.kernel < kernels_.size() ? std::uint64_t{task.blocks} * (1u + task.vectors) : 0;
    }
    replay_.begin(found, jobs);
}

std::vector<Replay::Range> Execution::ranges_of(std::uint32_t unit) const {
    const Transcript &transcript = scheduler_.transcript_of(unit);
    const Task &task = scheduler_.node(unit);
    const std::uint32_t submitted = scheduler_.task_of(unit);
    std::vector<Replay::Range> ranges;
    for (std::uint32_t i = 0; i < task.regions; i++) {
        const tasks::Region &region = transcript.regions[task.first_region + i];
        tasks::Argument bound = {region.begin, region.tensor, 0};
        if (scheduler_.is_graph(submitted))
            bound = tasks::bind(*transcript_, transcript_->tasks[submitted], bound);
        Replay::Range range{tasks::view_of(transcript, region), bound.tensor,
                            address_of(bound.tensor)};
        range.view.begin = range.address + bound.bits;
        if (range.view.span)
            ranges.push_back(range);
    }
    return ranges;
}

void Execution::document(const kl_delivery &delivery, const kl_header &header, Reader &reader) {
    DocumentRecord message{};
    const kl_node host = delivery.from;
    const auto answer = [this, host, request = header.request](const Outcome &outcome) {
        respond(platform_, node_, host, FABRIC_DOCUMENT, request, outcome);
    };
    if (!reader.take(message) || reader.left())
        return answer(Outcome::failure(KL_STATUS_INVALID, "a request for a document is cut short"));
    auto *const transfer =
        reinterpret_cast<DocumentTransfer *>(static_cast<std::uintptr_t>(message.transfer));
    if (!transcript_ || request_)
        return answer(Outcome::failure(KL_STATUS_INVALID,
                                       "there was no launch with an orchestration to tell about"));
    if (!keeps_launch_)
        return answer(Outcome::failure(KL_STATUS_INVALID, "nothing was kept of the last launch"));
    if (message.document == KL_DOCUMENTS_DEPENDENCIES)
        return answer(write_dependencies(transfer->tensors, transfer->text));
    if (message.document != KL_DOCUMENTS_REPLAY)
        return answer(Outcome::failure(KL_STATUS_INVALID, "an unknown document"));
    if (replay_.unit() == NONE) {
        write_names(transfer->text);
        return answer({});
    }
    const std::string who =
        text_of("{\"task\": %u, \"name\": ", scheduler_.task_of(replay_.unit())) +
        quoted(plain_name(replay_.unit()));
    if (!replay_.recorded()) {
        transfer->text = who + ", \"executed\": false}\n";
        return answer({});
    }
    replay_.run([this, transfer, who, answer](const Replay::Result &result) {
        std::string &text = transfer->text;
        text = who + text_of(", \"executed\": true, \"jobs\": %llu, \"regions\": %llu, "
                             "\"bytes\": %llu, \"equal\": %s",
                             (unsigned long long)result.jobs, (unsigned long long)result.regions,
                             (unsigned long long)result.bytes, result.equal ? "true" : "false");
        if (!result.equal)
            text += ", \"difference\": {\"tensor\": " +
                    quoted(tensor_name(*transcript_, result.tensor, transfer->tensors)) +
                    text_of(", \"byte\": %llu, \"before\": %u, \"after\": %u}",
                            (unsigned long long)result.byte, result.before, result.after);
        text += "}\n";
        answer(result.outcome);
    });
}

} // namespace kernloom::control
