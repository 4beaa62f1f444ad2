#include "dependencies.hpp"

#include <algorithm>
#include <tuple>

#include "accesses.hpp"
#include "remains.hpp"

namespace kernloom::tasks {

struct Dependencies::State {
    explicit State(const Transcript &recorded)
        : transcript(recorded), accesses(recorded), remains(recorded) {
    }

    bool is_retired(std::uint32_t task) const {
        return task / 64 < retired.size() && retired[task / 64] >> (task % 64) & 1;
    }

    void find(std::uint32_t from) {
        if (stamps[from] == task + 1)
            return;
        stamps[from] = task + 1;
        found->push_back(from);
    }

    void explain(std::uint32_t from, std::uint32_t kind) {
        if (edges)
            edges->push_back({from, task, kind, NONE, 0, 0});
    }

    void add_accesses(const Task &added);
    void add_access(std::uint32_t place, bool write);

    const Transcript &transcript;
    Accesses accesses;
    Remains remains;             // of reads
    Array<std::uint32_t> stamps; // by task: the last one that was found to depend on it, + 1
    Array<std::uint64_t> retired;
    std::uint32_t barrier = NONE;

    std::uint32_t task = 0; // that is being added
    Array<std::uint32_t> *found = nullptr;
    Array<Edge> *edges = nullptr;
};

Dependencies::Dependencies(const Transcript &transcript)
    : state_(std::make_unique<State>(transcript)) {
}

Dependencies::~Dependencies() = default;

void Dependencies::State::add_access(std::uint32_t place, bool write) {
    const Region &region = transcript.regions[place];
    accesses.add(place, [&](const Region &other) {
        // An access before the last barrier, or of a retired task, is of no use any more.
        if ((barrier != NONE && other.task < barrier) || is_retired(other.task))
            return true;
        bool covered = region.begin == other.begin && region.layout == other.layout;
        if (!covered) {
            const RegionView view = view_of(transcript, region);
            const RegionView seen = view_of(transcript, other);
            if (!overlap(view, seen))
                return false;
            covered = write && covers(view, seen);
            if (!covered && other.access == KL_ACCESS_IN) {
                const auto read = static_cast<std::uint32_t>(&other - transcript.regions.data());
                const Remains::Left left = remains.left(read, view);
                if (left == Remains::Left::NOTHING || left == Remains::Left::OTHER_BYTES)
                    return left == Remains::Left::NOTHING;
                covered = !remains.replace(read, view);
            }
        }
        if (other.task != task) {
            find(other.task);
            if (edges) {
                const bool wrote = other.access != KL_ACCESS_IN;
                const bool reads =
                    region.access == KL_ACCESS_IN || region.access == KL_ACCESS_INOUT;
                edges->push_back({other.task, task,
                                  static_cast<std::uint32_t>(!wrote  ? EDGE_WAR
                                                             : reads ? EDGE_RAW
                                                                     : EDGE_WAW),
                                  region.tensor, std::max(region.begin, other.begin),
                                  std::min(transcript.end_of(region), transcript.end_of(other))});
            }
        }
        return write && covered;
    });
}

// Reads before writes: a write of the task may replace what it reads.
void Dependencies::State::add_accesses(const Task &added) {
    const std::uint32_t begin = added.first_region, end = begin + added.regions;
    bool writes = false;
    for (std::uint32_t i = begin; i < end; i++) {
        const Region &region = transcript.regions[i];
        if (region.access != KL_ACCESS_IN) {
            writes = true;
        } else if (transcript.layouts[region.layout].span) {
            add_access(i, false);
        }
    }
    for (std::uint32_t i = begin; writes && i < end; i++) {
        const Region &region = transcript.regions[i];
        if (region.access == KL_ACCESS_IN || region.access == KL_ACCESS_NONE ||
            !transcript.layouts[region.layout].span)
            continue;
        // Nothing can have used a new tensor.
        if (region.access == KL_ACCESS_OUT)
            accesses.add_first(i);
        else
            add_access(i, true);
    }
}

void Dependencies::add(std::uint32_t task, Array<std::uint32_t> &found, Array<Edge> *edges) {
    State &state = *state_;
    const Task &added = state.transcript.tasks[task];
    const std::size_t before = edges ? edges->size() : 0;
    state.task = task;
    state.found = &found;
    state.edges = edges;
    state.stamps.push_back(0);
    if (added.flags & TASK_BARRIER) {
        const std::uint32_t last = state.barrier == NONE ? 0 : state.barrier + 1;
        for (std::uint32_t from = last; from < task; from++) {
            if (state.is_retired(from))
                continue;
            state.find(from);
            state.explain(from, EDGE_BARRIER);
        }
        if (last == task && last > 0 && !state.is_retired(last - 1)) {
            state.find(last - 1);
            state.explain(last - 1, EDGE_BARRIER);
        }
        state.barrier = task;
        return;
    }
    if (state.barrier != NONE && !state.is_retired(state.barrier)) {
        state.find(state.barrier);
        state.explain(state.barrier, EDGE_BARRIER);
    }
    for (std::uint32_t i = 0; i < added.after; i++) {
        const std::uint32_t from = state.transcript.after[added.first_after + i];
        if (state.is_retired(from))
            continue;
        state.find(from);
        state.explain(from, EDGE_EXPLICIT);
    }
    if (!(added.flags & TASK_MANUAL))
        state.add_accesses(added);
    // An access can be found in several places.
    if (edges)
        make_unique(*edges, before);
}

void Dependencies::retire(std::uint32_t task) {
    State &state = *state_;
    if (task / 64 >= state.retired.size())
        state.retired.resize(state.transcript.tasks.size() / 64 + 1);
    state.retired[task / 64] |= 1ull << (task % 64);
}

std::uint64_t Dependencies::bytes() const {
    return state_->accesses.bytes() + state_->remains.bytes() + state_->stamps.bytes() +
           state_->retired.bytes();
}

void make_unique(Array<Edge> &edges, std::size_t first) {
    const auto key = [](const Edge &edge) {
        return std::tie(edge.from, edge.kind, edge.tensor, edge.begin, edge.end);
    };
    std::sort(edges.begin() + first, edges.end(),
              [&](const Edge &a, const Edge &b) { return key(a) < key(b); });
    const Edge *const end =
        std::unique(edges.begin() + first, edges.end(),
                    [&](const Edge &a, const Edge &b) { return key(a) == key(b); });
    edges.truncate(static_cast<std::size_t>(end - edges.begin()));
}

const char *name_of_edge(std::uint32_t kind) {
    constexpr const char *names[EDGE_KINDS] = {"RAW", "WAW", "WAR", "explicit", "barrier", "heap"};
    return kind < EDGE_KINDS ? names[kind] : "unknown";
}

} // namespace kernloom::tasks
