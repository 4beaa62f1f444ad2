#include "races.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "accesses.hpp"
#include "graph.hpp"
#include "region_bytes.hpp"

namespace kernloom::tasks {

struct Races::Touched {
    std::uint32_t tensor;
    bool store;
    std::uint64_t begin; // in the tensor
    NewLayout layout;

    std::uint64_t end() const {
        return begin + layout.span;
    }
    auto key() const {
        return std::make_tuple(tensor, store, begin, layout.run, layout.span, layout.dimensions,
                               layout.dimension[0].stride);
    }
};

struct Races::Body {
    Edges own; // of the transcript: a graph has its own
    std::unique_ptr<Paths> paths;
};

Races::Races() = default;
Races::~Races() = default;

void Races::begin(const Transcript &transcript, std::span<const TensorRecord> tensors,
                  const HazardNames &names) {
    transcript_ = &transcript;
    names_ = &names;
    bodies_.clear();
    problem_ = {};
    places_.clear();
    first_region_.clear();
    layouts_.reset();
    kept_.reset();
    find_watched(tensors);
    find_written_by_blocks();
    if (!any_loose_ && !any_by_blocks_)
        return;
    kept_ = std::make_unique<Transcript>();
    kept_->tensors = transcript.tensors;
    layouts_ = std::make_unique<Layouts>(*kept_);
    bodies_.resize(1 + transcript.graphs.size());
}

void Races::find_written_by_blocks() {
    by_blocks_.assign(transcript_->tensors.size(), false);
    any_by_blocks_ = false;
    const auto find = [&](const Transcript &body, const Task &task, const Task *submitted) {
        for (std::uint32_t i = 0; task.blocks > 1 && i < task.regions; i++) {
            const Region &region = body.regions[task.first_region + i];
            if (region.access == KL_ACCESS_IN)
                continue;
            const std::uint32_t tensor =
                submitted ? bind(*transcript_, *submitted, {0, region.tensor, 0}).tensor
                          : region.tensor;
            by_blocks_[shared_with_[tensor]] = true;
            any_by_blocks_ = true;
        }
    };
    for (const Task &task : transcript_->tasks) {
        if (!(task.flags & TASK_GRAPH)) {
            find(*transcript_, task, nullptr);
            continue;
        }
        const Transcript &body = transcript_->graphs[task.kernel].body;
        for (const Task &node : body.tasks)
            find(body, node, &task);
    }
}

// Finds the tensors whose users may not be ordered.
void Races::find_watched(std::span<const TensorRecord> tensors) {
    const std::size_t count = transcript_->tensors.size();
    any_loose_ = false;
    loose_.assign(count, false);
    shared_with_.resize(count);
    std::iota(shared_with_.begin(), shared_with_.end(), 0u);
    shift_.assign(count, 0);
    const auto mark = [&](std::uint32_t tensor) {
        loose_[shared_with_[tensor]] = true;
        any_loose_ = true;
    };
    std::vector<std::uint32_t> order(std::min(tensors.size(), count));
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return tensors[a].address < tensors[b].address;
    });
    std::uint64_t end = 0;
    std::uint32_t first = NONE; // of those that share memory with the one before
    for (const std::uint32_t place : order) {
        const TensorRecord one = tensors[place];
        // A tensor without bytes shares none, wherever it is.
        if (!one.bytes)
            continue;
        if (first == NONE || one.address >= end) {
            first = place;
        } else {
            shared_with_[place] = first;
            shift_[place] = one.address - tensors[first].address;
            mark(first);
        }
        end = std::max(end, one.address + one.bytes);
    }
    for (const Task &task : transcript_->tasks) {
        const bool manual = task.flags & TASK_MANUAL;
        for (std::uint32_t i = 0; i < task.regions; i++) {
            const Region &region = transcript_->regions[task.first_region + i];
            if (manual || region.access == KL_ACCESS_NONE)
                mark(region.tensor);
        }
        if (!(task.flags & TASK_GRAPH))
            continue;
        // One tensor may be given for several of the graph's.
        const RecordedGraph &graph = transcript_->graphs[task.kernel];
        const Argument *const given = transcript_->arguments.data() + task.first_argument;
        for (std::uint32_t i = 0; i < graph.body.launch_tensors; i++)
            for (std::uint32_t j = 0; j < i; j++)
                if (given[i].tensor == given[j].tensor && graph.needs[i] && graph.needs[j])
                    mark(given[i].tensor);
        for (const Region &region : graph.body.regions)
            if (region.tensor >= graph.body.launch_tensors &&
                (region.access == KL_ACCESS_NONE ||
                 (graph.body.tasks[region.task].flags & TASK_MANUAL)))
                mark(bind(*transcript_, task, {region.begin, region.tensor, 0}).tensor);
    }
}

void Races::begin_task(TaskPlace place) {
    touched_.clear();
    const Task &task = transcript_->tasks[place.task];
    const bool graph = place.node != NONE;
    in_blocks_ =
        any_by_blocks_ &&
        (graph ? transcript_->graphs[task.kernel].body.tasks[place.node] : task).blocks > 1;
}

// Remembers a transfer to a tensor whose users may not be ordered.
void Races::touch_watched(std::uint32_t given, const RegionView &view, bool store) {
    const std::uint32_t tensor = shared_with_[given];
    if (!loose_[tensor] && !(in_blocks_ && by_blocks_[tensor]))
        return;
    Touched one{tensor, store, view.begin - names_->address(given) + shift_[given], {}};
    one.layout.run = view.run;
    one.layout.span = view.span;
    one.layout.dimensions = view.dimensions;
    std::copy(view.dimension, view.dimension + view.dimensions, one.layout.dimension);
    Touched *const last = touched_.empty() ? nullptr : &touched_.back();
    if (last && last->tensor == tensor && last->store == store && !last->layout.dimensions &&
        !one.layout.dimensions && last->end() == one.begin) {
        last->layout.run = last->layout.span += one.layout.span;
        return;
    }
    touched_.push_back(one);
}

// Keeps the transfers of a task: each once, and those that follow each other as one.
void Races::keep(TaskPlace place) {
    if (touched_.empty())
        return;
    std::sort(touched_.begin(), touched_.end(),
              [](const Touched &a, const Touched &b) { return a.key() < b.key(); });
    const auto number = static_cast<std::uint32_t>(places_.size());
    places_.push_back(place);
    first_region_.push_back(static_cast<std::uint32_t>(kept_->regions.size()));
    for (std::size_t i = 0; i < touched_.size();) {
        Touched one = touched_[i++];
        for (; i < touched_.size(); i++) {
            const Touched &next = touched_[i];
            if (next.key() == one.key())
                continue;
            if (next.tensor != one.tensor || next.store != one.store || next.layout.dimensions ||
                one.layout.dimensions || next.begin > one.end())
                break;
            one.layout.run = one.layout.span = std::max(one.end(), next.end()) - one.begin;
        }
        const std::uint8_t access = one.store ? KL_ACCESS_WRITE : KL_ACCESS_IN;
        kept_->regions.push_back(
            {one.tensor, number, one.begin, layouts_->intern(one.layout), access, 0, 0});
    }
}

Paths *Races::paths_of(std::uint32_t body) {
    if (!bodies_[body]) {
        bodies_[body] = std::make_unique<Body>();
        Body &made = *bodies_[body];
        // However many there are: the runtime may derive them one task at a time.
        Limits limits;
        limits.edges = UINT32_MAX;
        if (body == 0)
            problem_ = derive_edges(*transcript_, {}, limits, made.own);
        if (!problem_.ok())
            return nullptr;
        const RecordedGraph *graph = body ? &transcript_->graphs[body - 1] : nullptr;
        made.paths = std::make_unique<Paths>(graph ? graph->body : *transcript_,
                                             graph ? graph->edges : made.own);
    }
    return bodies_[body]->paths.get();
}

bool Races::ordered(TaskPlace from, TaskPlace to) {
    const bool inside = from.task == to.task;
    if (from.same_task(to))
        return from.block == to.block;
    Paths *const paths = paths_of(inside ? 1 + transcript_->tasks[to.task].kernel : 0);
    if (!paths)
        return true;
    return inside ? paths->has(from.node, to.node) : paths->has(from.task, to.task);
}

Outcome Races::find() {
    if (!any_loose_ && !any_by_blocks_)
        return {};
    const Transcript &kept = *kept_;
    std::vector<std::uint32_t> order(places_.size());
    std::iota(order.begin(), order.end(), 0u);
    // In order of submission.
    std::stable_sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
        const TaskPlace &x = places_[a], &y = places_[b];
        return std::tie(x.task, x.node, x.block) < std::tie(y.task, y.node, y.block);
    });
    Accesses accesses(kept);
    Outcome found;
    const auto compare = [&](std::uint32_t place) {
        const Region &region = kept.regions[place];
        const RegionView view = view_of(kept, region);
        const bool write = region.access != KL_ACCESS_IN;
        accesses.add(place, [&](const Region &other) {
            // Dependencies order what other tasks have declared.
            if (!loose_[region.tensor] && !places_[other.task].same_task(places_[region.task]))
                return true;
            const bool same = region.begin == other.begin && region.layout == other.layout;
            const RegionView seen = view_of(kept, other);
            if (!same && !overlap(view, seen))
                return false;
            if (!ordered(places_[other.task], places_[region.task])) {
                if (found.ok() && !first_common(view, seen).empty())
                    found = race(other, region, write);
                return false;
            }
            return write && (same || covers(view, seen));
        });
    };
    for (const std::uint32_t number : order) {
        const std::uint32_t begin = first_region_[number];
        const auto end = static_cast<std::uint32_t>(
            number + 1 < first_region_.size() ? first_region_[number + 1] : kept.regions.size());
        // Reads before writes: a write of the task may replace what it reads.
        for (const bool writes : {false, true})
            for (std::uint32_t place = begin; place < end && found.ok(); place++)
                if ((kept.regions[place].access != KL_ACCESS_IN) == writes)
                    compare(place);
        if (!found.ok())
            return found;
    }
    return problem_;
}

Outcome Races::race(const Region &first, const Region &second, bool write) const {
    const ByteRange bytes = first_common(view_of(*kept_, first), view_of(*kept_, second));
    const bool wrote = first.access != KL_ACCESS_IN;
    const std::uint32_t tensor = second.tensor;
    const TaskPlace &one = places_[first.task], &other = places_[second.task];
    const bool blocks = one.same_task(other);
    std::string names[] = {names_->task(one), names_->task(other)};
    if (blocks) {
        names[0] = text_of("block %u of %s", one.block, names[0].c_str());
        names[1] = text_of("block %u", other.block);
    }
    return Outcome::failure(
        KL_STATUS_HAZARD,
        text_of("hazard: %s %s and %s %s bytes %llu to %llu of %s, and neither waits for the other",
                names[0].c_str(), wrote ? "writes" : "reads", names[1].c_str(),
                write ? "writes" : "reads", (unsigned long long)bytes.begin,
                (unsigned long long)(bytes.end - 1), names_->tensor(*transcript_, tensor).c_str()),
        tensor < transcript_->launch_tensors ? names_->address(tensor) + bytes.begin : 0);
}

} // namespace kernloom::tasks
