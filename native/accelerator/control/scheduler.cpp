#include "scheduler.hpp"

#include <algorithm>

namespace kernloom::control {

namespace {

constexpr std::uint32_t MOST_UNITS = 1 << 28;

std::uint32_t jobs_of(const Task &node) {
    return node.blocks * (1 + node.vectors);
}

bool in_step(const Task &node) {
    return (node.flags & tasks::TASK_SYNC_START) && jobs_of(node) > 1;
}

} // namespace

Scheduler::Scheduler(const kl_arch &arch, std::uint32_t queue)
    : arch_(arch), queue_(queue ? queue : 1) {
    for (std::uint32_t sip = 0; sip < arch.sips; sip++)
        for (std::uint32_t cube = 0; cube < arch.cubes; cube++)
            for (std::uint32_t pe = 0; pe < arch.pes; pe++)
                nodes_.push_back({KL_NODE_PE, static_cast<std::uint16_t>(sip),
                                  static_cast<std::uint16_t>(cube),
                                  static_cast<std::uint16_t>(pe)});
    for (auto &levels : free_)
        levels.resize(queue_ + 1);
}

Scheduler::Class Scheduler::class_of(const Task &task) const {
    if (task.kernel == KL_NO_KERNEL || (task.flags & tasks::TASK_GRAPH))
        return NOWHERE;
    if (task.vectors || in_step(task))
        return GANG;
    const std::uint32_t type = core_types_[task.kernel];
    return type < KL_CORE_TYPES ? static_cast<Class>(type) : ANY;
}

Outcome Scheduler::begin(const Transcript &transcript, std::span<const std::uint32_t> core_types,
                         Ends &ends) {
    transcript_ = &transcript;
    core_types_ = core_types;
    ends_ = &ends;
    pes_.clear();
    for (const kl_node node : nodes_)
        pes_.push_back({arch_.core_types[node.pe], 0, NONE});
    const auto pes = static_cast<std::uint32_t>(pes_.size());
    for (auto &levels : free_)
        for (OrderedSet &level : levels)
            level.reset(pes);
    for (std::uint32_t i = 0; i < pes; i++)
        free_[pes_[i].type][0].insert(i);

    const auto count = static_cast<std::uint32_t>(transcript.tasks.size());
    first_unit_.clear();
    task_of_unit_.clear();
    waiting_.clear();
    nodes_left_.clear();
    decided_.clear();
    std::uint64_t units = count;
    bool predicates = !transcript.predicates.empty();
    if (!transcript.graphs.empty()) {
        units = 0;
        nodes_left_.resize(count);
        for (std::uint32_t i = 0; i < count; i++) {
            const Task &task = transcript.tasks[i];
            const std::size_t own = std::max<std::size_t>(
                is_graph(i) ? transcript.graphs[task.kernel].body.tasks.size() : 1, 1);
            first_unit_.push_back(static_cast<std::uint32_t>(units));
            units += own;
            if (units > MOST_UNITS)
                return Outcome::failure(
                    KL_STATUS_OUT_OF_MEMORY,
                    text_of("the graphs that are submitted have more than %u tasks", MOST_UNITS));
            std::uint32_t *of = task_of_unit_.add(own);
            std::fill(of, of + own, i);
        }
        waiting_.resize(units);
        for (const tasks::RecordedGraph &graph : transcript.graphs)
            predicates = predicates || !graph.body.predicates.empty();
    }
    units_ = static_cast<std::uint32_t>(units);
    undispatched_.clear();
    undispatched_.resize(units_);
    unfinished_.clear();
    unfinished_.resize(units_);
    if (predicates)
        decided_.resize(units_ / 64 + 1);
    for (OrderedSet &set : ready_)
        set.reset(units_);
    ready_count_ = most_ready_ = 0;
    candidate_ = NONE;
    ended_.clear();
    assignments_.clear();
    free_assignments_.clear();
    running_ = 0;
    gangs_.clear();
    unused_gangs_.clear();
    complete_gangs_.clear();
    std::fill(std::begin(gangs_for_), std::end(gangs_for_), 0);
    return {};
}

void Scheduler::make_ready(std::uint32_t unit, const Task &node) {
    const Class where = class_of(node);
    if (list_)
        list_->push_back(unit);
    if (where == NOWHERE)
        return finish(unit);
    undispatched_[unit] = node.blocks;
    unfinished_[unit] = jobs_of(node);
    ready_[where].insert(unit);
    if (where == GANG)
        count_gang(node, 1);
    most_ready_ = std::max(most_ready_, ++ready_count_);
}

void Scheduler::ready(std::uint32_t task) {
    if (!is_graph(task))
        return make_ready(first_unit_.empty() ? task : first_unit_[task], transcript_->tasks[task]);
    const tasks::RecordedGraph &graph = transcript_->graphs[transcript_->tasks[task].kernel];
    const std::uint32_t first = first_unit_[task];
    const auto nodes = static_cast<std::uint32_t>(graph.body.tasks.size());
    nodes_left_[task] = nodes;
    if (!nodes)
        return finish(first);
    std::copy_n(graph.edges.predecessors.data(), nodes, waiting_.data() + first);
    for (std::uint32_t i = 0; i < nodes; i++)
        if (!graph.edges.predecessors[i])
            make_ready(first + i, graph.body.tasks[i]);
}

// Ends are dealt with one after the other, however long the chain of tasks without work.
void Scheduler::finish(std::uint32_t unit) {
    ended_.push_back(unit);
    if (ending_)
        return;
    ending_ = true;
    for (std::size_t i = 0; i < ended_.size(); i++)
        end(ended_[i]);
    ended_.clear();
    ending_ = false;
}

void Scheduler::end(std::uint32_t unit) {
    const std::uint32_t task = task_of(unit);
    if (!is_graph(task) || !nodes_left_[task])
        return ends_->ended(task);
    const tasks::RecordedGraph &graph = transcript_->graphs[transcript_->tasks[task].kernel];
    const std::uint32_t first = first_unit_[task], place = unit - first;
    for (std::uint32_t i = graph.edges.first[place]; i < graph.edges.first[place + 1]; i++) {
        const std::uint32_t next = graph.edges.successors[i];
        if (--waiting_[first + next] == 0)
            make_ready(first + next, graph.body.tasks[next]);
    }
    if (--nodes_left_[task] == 0)
        ends_->ended(task);
}

bool Scheduler::is_decided(std::uint32_t unit, const Task &node) const {
    return node.predicate == NONE || (decided_[unit / 64] >> unit % 64 & 1);
}

void Scheduler::decide(std::uint32_t unit, bool execute) {
    if (execute) {
        decided_[unit / 64] |= std::uint64_t{1} << unit % 64;
        return;
    }
    const Class where = class_of(node(unit));
    ready_[where].erase(unit);
    if (where == GANG)
        count_gang(node(unit), -1);
    ready_count_--;
    finish(unit);
}

// The least load of a PE that has room; `queue_` if there is none.
std::uint32_t Scheduler::level(std::uint32_t type) const {
    std::uint32_t found = 0;
    while (found < queue_ && free_[type][found].empty())
        found++;
    return found;
}

Scheduler::Next Scheduler::next() {
    candidate_ = NONE;
    if (!complete_gangs_.empty())
        return Next::DISPATCH;
    bool room = false;
    for (const std::uint32_t type : {MATRIX, VECTOR}) {
        const bool has = level(type) < queue_;
        room = room || has;
        if (has && !ready_[type].empty())
            candidate_ = std::min(candidate_, ready_[type].first());
    }
    if (room && !ready_[ANY].empty())
        candidate_ = std::min(candidate_, ready_[ANY].first());
    if (!ready_[GANG].empty() && ready_[GANG].first() < candidate_) {
        const std::uint32_t unit = ready_[GANG].first();
        if (!is_decided(unit, node(unit)))
            candidate_ = unit;
        else if (claim(unit))
            return next(); // with fewer PEs
    }
    if (candidate_ == NONE)
        return Next::NOTHING;
    return is_decided(candidate_, node(candidate_)) ? Next::DISPATCH : Next::PREDICATE;
}

Job Scheduler::send(std::uint32_t unit, const Member &member) {
    std::uint32_t place;
    if (free_assignments_.empty()) {
        place = static_cast<std::uint32_t>(assignments_.size());
        assignments_.emplace_back();
    } else {
        place = free_assignments_.back();
        free_assignments_.pop_back();
    }
    assignments_[place] = {unit, member.pe};
    running_++;
    set_load(member.pe, pes_[member.pe].load + 1);
    return {place, unit, member.pe, member.kernel, member.block, member.of_blocks, 0, 0};
}

Job Scheduler::dispatch() {
    if (!complete_gangs_.empty()) {
        Gang &gang = gangs_[complete_gangs_.front()];
        const Member member = gang.members[gang.sent];
        if (gang.sent++ == 0)
            last_gang_++;
        unclaim(member.pe);
        Job job = send(gang.unit, member);
        job.members = static_cast<std::uint32_t>(gang.members.size());
        job.gang = last_gang_;
        if (gang.sent == gang.members.size()) {
            unused_gangs_.push_back(complete_gangs_.front());
            complete_gangs_.erase(complete_gangs_.begin());
            count_gang(node(gang.unit), -1);
        }
        return job;
    }
    const std::uint32_t unit = candidate_;
    const Task &task = node(unit);
    const Class where = class_of(task);
    std::uint32_t type = where;
    if (where == ANY) {
        const std::uint32_t matrix = level(MATRIX), vector = level(VECTOR);
        type = matrix != vector ? (matrix < vector ? MATRIX : VECTOR)
               : free_[MATRIX][matrix].first() < free_[VECTOR][vector].first() ? MATRIX
                                                                               : VECTOR;
    }
    const std::uint32_t block = task.blocks - undispatched_[unit];
    if (--undispatched_[unit] == 0) {
        ready_[where].erase(unit);
        ready_count_--;
    }
    Member member{free_[type][level(type)].first(), task.kernel, block, task.blocks};
    if (task.blocks == 1) {
        member.block = task.block;
        member.of_blocks = task.of_blocks;
    }
    return send(unit, member);
}

void Scheduler::set_load(std::uint32_t pe, std::uint32_t load) {
    Pe &one = pes_[pe];
    if (one.gang == NONE) {
        free_[one.type][one.load].erase(pe);
        free_[one.type][load].insert(pe);
    }
    one.load = load;
}

void Scheduler::completed(std::uint32_t assignment) {
    const Assignment done = assignments_[assignment];
    free_assignments_.push_back(assignment);
    running_--;
    Pe &pe = pes_[done.pe];
    set_load(done.pe, pe.load - 1);
    if (pe.gang != NONE && pe.load == 0 && --gangs_[pe.gang].missing == 0)
        complete_gangs_.push_back(pe.gang);
    if (--unfinished_[done.unit] == 0)
        finish(done.unit);
}

void Scheduler::count_gang(const Task &node, int by) {
    const std::uint32_t kernel = core_types_[node.kernel];
    for (std::uint32_t type = 0; type < KL_CORE_TYPES; type++)
        if (node.vectors || kernel >= KL_CORE_TYPES || kernel == type)
            gangs_for_[type] += static_cast<std::uint32_t>(by);
}

void Scheduler::claim_pe(std::uint32_t pe, std::uint32_t gang) {
    Pe &one = pes_[pe];
    free_[one.type][one.load].erase(pe);
    one.gang = gang;
}

void Scheduler::unclaim(std::uint32_t pe) {
    Pe &one = pes_[pe];
    one.gang = NONE;
    free_[one.type][one.load].insert(pe);
}

// A block of a mixed task: the cube whose PEs have the least to do.
bool Scheduler::find_mixed(const Task &node, std::uint32_t block, std::vector<Member> &members) {
    const auto taken = [&](std::uint32_t pe) {
        return pes_[pe].gang != NONE ||
               std::any_of(members.begin(), members.end(),
                           [&](const Member &member) { return member.pe == pe; });
    };
    std::uint32_t best = NONE;
    std::uint32_t found[1 + KL_MAX_VECTORS], chosen[1 + KL_MAX_VECTORS];
    for (std::uint32_t first = 0; first < pes_.size() && best; first += arch_.pes) {
        std::uint32_t load = 0, count = 0;
        for (std::uint32_t role = 0; role < 1 + std::uint32_t{node.vectors}; role++) {
            const std::uint32_t type = role ? KL_CORE_VECTOR : KL_CORE_MATRIX;
            std::uint32_t least = NONE;
            for (std::uint32_t pe = first; pe < first + arch_.pes; pe++)
                if (pes_[pe].type == type && !taken(pe) &&
                    std::find(found, found + count, pe) == found + count &&
                    (least == NONE || pes_[pe].load < pes_[least].load))
                    least = pe;
            if (least == NONE)
                break;
            load += pes_[least].load;
            found[count++] = least;
        }
        if (count == 1u + node.vectors && load < best) {
            best = load;
            std::copy_n(found, count, chosen);
        }
    }
    if (best == NONE)
        return false;
    const bool spmd = node.blocks > 1;
    const std::uint32_t own = spmd ? block : node.block;
    const std::uint32_t of = spmd ? node.blocks : node.of_blocks;
    members.push_back({chosen[0], node.kernel, own, of});
    for (std::uint32_t lane = 0; lane < node.vectors; lane++)
        members.push_back(
            {chosen[1 + lane], node.vector_kernel, own * node.vectors + lane, of * node.vectors});
    return true;
}

// PEs for one block of a mixed task, or for all blocks of one with sync start.
bool Scheduler::find_members(const Task &node, std::uint32_t block, std::vector<Member> &members) {
    if (node.vectors) {
        const std::uint32_t end = in_step(node) && node.blocks > 1 ? node.blocks : block + 1;
        for (; block < end; block++)
            if (!find_mixed(node, block, members))
                return false;
        return true;
    }
    const std::uint32_t type = core_types_[node.kernel];
    for (std::uint32_t load = 0; load <= queue_; load++)
        for (std::uint32_t one = 0; one < KL_CORE_TYPES; one++) {
            if (type < KL_CORE_TYPES && type != one)
                continue;
            free_[one][load].each([&](std::uint32_t pe) {
                const auto next = static_cast<std::uint32_t>(members.size());
                if (next < node.blocks)
                    members.push_back({pe, node.kernel, next, node.blocks});
                return next < node.blocks;
            });
        }
    return members.size() == node.blocks;
}

bool Scheduler::claim(std::uint32_t unit) {
    const Task &task = node(unit);
    std::uint32_t place;
    if (unused_gangs_.empty()) {
        place = static_cast<std::uint32_t>(gangs_.size());
        gangs_.emplace_back();
        unused_gangs_.push_back(place);
    }
    place = unused_gangs_.back();
    Gang &gang = gangs_[place];
    gang.members.clear();
    if (!find_members(task, task.blocks - undispatched_[unit], gang.members))
        return false;
    unused_gangs_.pop_back();
    count_gang(task, 1);
    gang.unit = unit;
    gang.missing = gang.sent = 0;
    for (const Member &member : gang.members) {
        claim_pe(member.pe, place);
        gang.missing += pes_[member.pe].load != 0;
    }
    undispatched_[unit] -= in_step(task) ? task.blocks : 1;
    if (!undispatched_[unit]) {
        ready_[GANG].erase(unit);
        count_gang(task, -1);
        ready_count_--;
    }
    if (!gang.missing)
        complete_gangs_.push_back(place);
    return true;
}

void Scheduler::abandon() {
    for (OrderedSet &set : ready_)
        set.reset(units_);
    // The PEs of one that has begun to start wait for the others.
    std::size_t begun = !complete_gangs_.empty() && gangs_[complete_gangs_.front()].sent ? 1 : 0;
    complete_gangs_.resize(begun);
    std::fill(std::begin(gangs_for_), std::end(gangs_for_), 0);
    if (begun)
        count_gang(node(gangs_[complete_gangs_.front()].unit), 1);
    candidate_ = NONE;
}

std::uint64_t Scheduler::bytes() const {
    std::uint64_t bytes = first_unit_.bytes() + task_of_unit_.bytes() + waiting_.bytes() +
                          nodes_left_.bytes() + undispatched_.bytes() + unfinished_.bytes() +
                          decided_.bytes();
    for (const OrderedSet &set : ready_)
        bytes += set.bytes();
    return bytes;
}

} // namespace kernloom::control
