#include "ring_order.hpp"

#include <algorithm>

#include "peaks.hpp"

namespace kernloom::control {

namespace {

constexpr std::uint32_t ENDED = NONE;

} // namespace

Outcome RingOrder::begin(const Transcript &transcript, const tasks::Graph *, Scheduler &scheduler) {
    transcript_ = &transcript;
    scheduler_ = &scheduler;
    dependencies_ = std::make_unique<tasks::Dependencies>(transcript);
    tasks_ = static_cast<std::uint32_t>(transcript.tasks.size());
    if (!sizes_.depths)
        return Outcome::failure(
            KL_STATUS_INVALID, "there is no ring: the least that works is 1 (runtime.ring.depths)");
    rings_.resize(sizes_.depths);
    for (Ring &ring : rings_)
        ring.reset(sizes_);
    next_ = ended_count_ = 0;
    std::fill(std::begin(waiting_), std::end(waiting_), 0);
    predecessors_.clear();
    predecessors_.resize(tasks_);
    successors_.clear();
    successors_.reserve(tasks_);
    users_.clear();
    offsets_.clear();
    offsets_.resize(transcript.tensors.size() - transcript.launch_tensors);
    links_.clear();
    edges_.clear();
    free_link_ = NONE;
    end_output_ = transcript.launch_tensors;
    if (!offsets_.empty())
        count_users();
    prepare();
    return {};
}

// Calls visit(producer) for each use of an output by a task.
template <class Visit> void RingOrder::each_user(std::uint32_t task, Visit visit) const {
    const Task &one = transcript_->tasks[task];
    const auto use = [&](std::uint32_t tensor) {
        if (tensor >= transcript_->launch_tensors && tensor < transcript_->tensors.size() &&
            transcript_->tensors[tensor].producer != task)
            visit(transcript_->tensors[tensor].producer);
    };
    for (std::uint32_t i = 0; i < one.arguments; i++)
        use(transcript_->arguments[one.first_argument + i].tensor);
    if (one.predicate != NONE)
        use(transcript_->predicates[one.predicate].tensor);
}

void RingOrder::count_users() {
    users_.resize(tasks_);
    for (std::uint32_t task = 0; task < tasks_; task++)
        each_user(task, [&](std::uint32_t producer) { users_[producer]++; });
}

// Finds out what the next task needs, and whether it is there.
void RingOrder::prepare() {
    if (next_ == tasks_)
        return;
    first_output_ = end_output_;
    need_ = need_of(*transcript_, next_, end_output_);
    ring_ = ring_of(*transcript_, transcript_->tasks[next_], sizes_.depths);
    find_lacking();
}

void RingOrder::find_lacking() {
    lacking_ = rings_[ring_].lacks(need_);
    if (lacking_ != RESOURCES)
        rings_[ring_].block(lacking_);
}

void RingOrder::link(std::uint32_t from, std::uint32_t to) {
    std::uint32_t place = free_link_;
    if (place == NONE) {
        place = static_cast<std::uint32_t>(links_.size());
        links_.push_back({});
    } else {
        free_link_ = links_[place].next;
    }
    links_[place] = {to, successors_[from]};
    successors_[from] = place;
}

void RingOrder::submit() {
    const std::uint32_t task = next_++;
    const std::uint64_t at = rings_[ring_].take(task, need_);
    std::uint64_t offset = ring_ * rings_[ring_].size(HEAP) + at;
    for (std::uint32_t i = first_output_; i < end_output_; i++) {
        offsets_[i - transcript_->launch_tensors] = offset;
        offset += heap_bytes(transcript_->tensors[i].bytes);
    }
    successors_.push_back(NONE);
    found_.clear();
    dependencies_->add(task, found_, keep_edges_ ? &edges_ : nullptr);
    std::uint32_t waits = 0;
    for (const std::uint32_t from : found_)
        if (predecessors_[from] != ENDED) {
            link(from, task);
            waits++;
        }
    predecessors_[task] = waits;
    if (waits)
        waiting_[scheduler_->class_of(transcript_->tasks[task])]++;
    else {
        // A task without work ends at once; what the next task needs is found out below.
        submitting_ = true;
        scheduler_->ready(task);
        submitting_ = false;
    }
    // A scope may have ended.
    for (std::uint32_t ring = 0; ring < sizes_.depths; ring++)
        reclaim(ring);
    prepare();
}

bool RingOrder::dead(std::uint32_t task) const {
    if (predecessors_[task] != ENDED)
        return false;
    if (users_.empty())
        return true;
    const Task &one = transcript_->tasks[task];
    // What a recorded graph needs for itself is not needed by any other task.
    if (one.flags & tasks::TASK_GRAPH)
        return true;
    // Only a task with outputs has users, or may still get some.
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < one.arguments; i++) {
        const std::uint32_t tensor = transcript_->arguments[one.first_argument + i].tensor;
        if (tensor >= transcript_->launch_tensors && tensor < transcript_->tensors.size() &&
            transcript_->tensors[tensor].producer == task)
            bytes += transcript_->tensors[tensor].bytes;
    }
    return !bytes || (transcript_->scopes[one.scope].end <= next_ && !users_[task]);
}

void RingOrder::reclaim(std::uint32_t place) {
    Ring &ring = rings_[place];
    while (!ring.empty() && dead(ring.oldest())) {
        dependencies_->retire(ring.oldest());
        ring.give_back();
    }
}

void RingOrder::ended(std::uint32_t task) {
    predecessors_[task] = ENDED;
    ended_count_++;
    // In order of submission: links are in the opposite order.
    found_.clear();
    for (std::uint32_t place = successors_[task]; place != NONE;) {
        const Link one = links_[place];
        if (--predecessors_[one.task] == 0)
            found_.push_back(one.task);
        links_[place].next = free_link_;
        free_link_ = place;
        place = one.next;
    }
    successors_[task] = NONE;
    if (!users_.empty())
        each_user(task, [&](std::uint32_t producer) { users_[producer]--; });
    for (std::uint32_t i = static_cast<std::uint32_t>(found_.size()); i-- > 0;) {
        waiting_[scheduler_->class_of(transcript_->tasks[found_[i]])]--;
        scheduler_->ready(found_[i]);
    }
    for (std::uint32_t ring = 0; ring < sizes_.depths; ring++)
        reclaim(ring);
    if (next_ < tasks_ && !submitting_)
        find_lacking();
}

std::string RingOrder::name_of(std::uint32_t task) const {
    const Task &one = transcript_->tasks[task];
    if (one.flags & tasks::TASK_GRAPH)
        return text_of("task %u '%.100s'", task, transcript_->graphs[one.kernel].name.c_str());
    if (one.name == NONE)
        return text_of("task %u", task);
    return text_of("task %u '%.100s'", task, transcript_->names[one.name].c_str());
}

Outcome RingOrder::stuck(std::uint64_t now_ps) const {
    const Ring &ring = rings_[ring_];
    const auto [least, exact] = least_sizes(*transcript_, sizes_, lacking_);
    std::string text = text_of(
        "deadlock at %llu ps of virtual time: %s cannot be submitted, and nothing is left to run. "
        "Stall class: %s of the ring of scope depth %u: it has %llu, %llu are taken and %llu more "
        "are needed (%s)",
        (unsigned long long)now_ps, name_of(next_).c_str(), RESOURCE_NAMES[lacking_], ring_,
        (unsigned long long)ring.size(lacking_), (unsigned long long)ring.used(lacking_),
        (unsigned long long)ring.more(need_, lacking_), RESOURCE_KEYS[lacking_]);
    if (!ring.empty())
        text += text_of("; the oldest are held by %s, whose outputs live until its scope ends",
                        name_of(ring.oldest()).c_str());
    text += text_of(". %s is %s=%llu",
                    lacking_ == HEAP && !exact ? "A size that works" : "The least that works",
                    RESOURCE_KEYS[lacking_], (unsigned long long)least.size[lacking_]);
    for (std::uint32_t i = 0; i < RESOURCES; i++)
        if (i != lacking_ && least.size[i] > ring.size(i))
            text += text_of(" with %s=%llu", RESOURCE_KEYS[i], (unsigned long long)least.size[i]);
    return Outcome::failure(KL_STATUS_OUT_OF_MEMORY, std::move(text), least.size[lacking_]);
}

void RingOrder::each_use(
    const std::function<void(const char *name, std::uint64_t used)> &visit) const {
    for (std::uint32_t depth = 0; depth < sizes_.depths; depth++)
        for (std::uint32_t i = 0; i < RESOURCES; i++)
            visit(text_of("ring %u %s", depth, RESOURCE_NAMES[i]).c_str(), rings_[depth].used(i));
}

std::string RingOrder::peaks() const {
    std::string text;
    for (std::uint32_t depth = 0; depth < sizes_.depths; depth++)
        for (std::uint32_t i = 0; i < RESOURCES; i++)
            if (const Ring &ring = rings_[depth]; ring.peak(SLOTS))
                text += peak_line(text_of("ring.%u.%s", depth, RESOURCE_NAMES[i]), ring.peak(i),
                                  ring.size(i), ring.advised(i));
    return text + scope_lines(*transcript_);
}

std::uint64_t RingOrder::bytes() const {
    return dependencies_->bytes() + predecessors_.bytes() + successors_.bytes() + users_.bytes() +
           offsets_.bytes() + links_.bytes();
}

} // namespace kernloom::control
