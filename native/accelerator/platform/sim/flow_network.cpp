#include "flow_network.hpp"

#include <cstddef>

namespace kernloom {

namespace {

// Sums of caps are kept up to date by adding and subtracting: equality is meant up to this.
constexpr double SLACK = 1 + 1e-9;
constexpr double SLIGHTLY_LESS = 1 - 1e-9;
// Sums of rates are kept the same way: a resource is near its capacity from here on.
constexpr double NEARLY = 1 - 1e-6;
constexpr double MOST_PS = 9e18; // a hundred days

// Half a picosecond is rounded up, also where the division before came out a little too low.
uint64_t rounded(double time) {
    if (time >= MOST_PS) {
        return static_cast<uint64_t>(MOST_PS);
    }
    return time <= 0 ? 0 : static_cast<uint64_t>(time + (0.5 + 1e-6));
}

uint64_t end_time(uint64_t epoch, uint64_t duration) {
    return duration < NEVER - epoch ? epoch + duration : NEVER - 1;
}

} // namespace

uint32_t FlowNetwork::add_resource(double capacity, Cause cause) {
    const uint32_t index = static_cast<uint32_t>(resources_.size());
    Resource &resource = resources_.emplace_back();
    resource.capacity = capacity;
    resource.cause = cause;
    resource.whole = index;
    return index;
}

uint32_t FlowNetwork::add_group(uint32_t units, double unit_capacity, double capacity,
                                Cause cause) {
    const uint32_t whole = add_resource(capacity, cause);
    resources_[whole].units = units;
    for (uint32_t i = 0; i < units; i++) {
        resources_[add_resource(unit_capacity, cause)].whole = whole;
    }
    return whole;
}

// Changes what the flows of a resource take at their caps.
void FlowNetwork::update_caps(uint32_t index, double by) {
    Resource &resource = resources_[index];
    resource.caps = resource.flows.empty() ? 0 : resource.caps + by;
    const Resource &whole = resources_[resource.whole];
    if (whole.units == 0 || (resource.units > 0 && whole.partial == 0)) {
        resource.limits = resource.caps > resource.capacity * SLACK;
        return;
    }
    for (uint32_t unit = resource.whole + 1; unit <= resource.whole + whole.units; unit++) {
        Resource &one = resources_[unit];
        one.limits = one.caps + whole.caps / whole.units > one.capacity * SLACK;
    }
}

// Visits what may limit a flow: a resource and the flow's coefficient there. A group limits as a
// whole as long as all its flows use all its units.
template <typename Visit>
[[gnu::always_inline]] inline void FlowNetwork::each_constraint(const Flow &flow, Visit visit) {
    for (const Edge &edge : flow.edges) {
        const Resource &resource = resources_[edge.resource];
        if (resource.partial == 0) [[likely]] {
            if (resource.limits) {
                visit(edge.resource, edge.coefficient);
            }
            continue;
        }
        const uint32_t units = resource.units;
        for (uint32_t unit = 1; unit <= units; unit++) {
            if (resources_[edge.resource + unit].limits) {
                visit(edge.resource + unit, edge.coefficient / units);
            }
        }
    }
}

template <typename Visit>
[[gnu::always_inline]] inline void FlowNetwork::each_flow(uint32_t index, Visit visit) {
    for (const Entry &entry : resources_[index].flows) {
        visit(entry.flow, entry.coefficient);
    }
    const uint32_t whole = resources_[index].whole;
    if (whole != index) [[unlikely]] {
        const uint32_t units = resources_[whole].units;
        for (const Entry &entry : resources_[whole].flows) {
            visit(entry.flow, entry.coefficient / units);
        }
    }
}

void FlowNetwork::mark(uint32_t index, double refill) {
    Flow &flow = flows_[index];
    if (!flow.dirty) {
        flow.dirty = true;
        flow.refill = refill;
        dirty_.push_back(index);
        out_of_date_++;
    } else if (refill > flow.refill) {
        flow.refill = refill;
    }
}

void FlowNetwork::mark_all(uint32_t resource, double refill) {
    for (const Entry &entry : resources_[resource].flows) {
        mark(entry.flow, refill);
    }
}

void FlowNetwork::start(uint64_t now, uint64_t bytes, double cap, Cause cap_cause,
                        const Share *shares, uint32_t count, uint32_t client) {
    if (active_++ == 0) {
        epoch_ = now;
    }
    if (free_.empty()) {
        free_.push_back(static_cast<uint32_t>(flows_.size()));
        flows_.emplace_back();
        ends_.grow(static_cast<uint32_t>(flows_.size()));
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Flow &flow = flows_[index];
    const double time = static_cast<double>(now - epoch_);
    for (uint32_t i = 0; i < count; i++) {
        const Resource &resource = resources_[shares[i].resource];
        const double bound = resource.capacity / shares[i].coefficient;
        if (bound < cap) {
            cap = bound;
            cap_cause = resource.cause;
        }
    }
    flow.rate = 0;
    flow.cap = cap;
    flow.remaining = static_cast<double>(bytes) * 1000;
    flow.updated = time;
    flow.bottleneck = NO_RESOURCE;
    flow.client = client;
    flow.cause = cap_cause;
    flow.cap_cause = cap_cause;
    flow.dirty = false;
    flow.started = true;
    flow.active = true;
    flow.edges.clear();
    for (uint32_t i = 0; i < count; i++) {
        Resource &resource = resources_[shares[i].resource];
        if (resource.whole != shares[i].resource && resources_[resource.whole].partial++ == 0) {
            mark_all(resource.whole, time); // from now on bounded by the units
        }
        flow.edges.push_back({shares[i].resource, static_cast<uint32_t>(resource.flows.size()),
                              shares[i].coefficient});
        resource.flows.push_back({index, i, shares[i].coefficient});
        update_caps(shares[i].resource, shares[i].coefficient * cap);
    }
    mark(index, time);
}

void FlowNetwork::remove(uint32_t index) {
    Flow &flow = flows_[index];
    const double ended = flow.ends;
    bind(flow, NO_RESOURCE);
    each_constraint(flow, [&](uint32_t resource, double) {
        if (resources_[resource].bound == 0) {
            return;
        }
        each_flow(resource, [&](uint32_t other, double) {
            if (flows_[other].bottleneck == resource) {
                mark(other, ended);
            }
        });
    });
    for (const Edge &edge : flow.edges) {
        Resource &resource = resources_[edge.resource];
        const Entry last = resource.flows.back();
        resource.flows[edge.position] = last;
        flows_[last.flow].edges[last.edge].position = edge.position;
        resource.flows.pop_back();
        resource.used = resource.flows.empty() ? 0 : resource.used - edge.coefficient * flow.rate;
        if (resource.whole != edge.resource && --resources_[resource.whole].partial == 0) {
            mark_all(resource.whole, ended);
            update_caps(resource.whole, 0);
        }
        update_caps(edge.resource, -edge.coefficient * flow.cap);
    }
    flow.active = false;
    active_--;
    if (flow.dirty) {
        out_of_date_--; // free from the next `settle` on
    } else {
        free_.push_back(index);
    }
}

uint32_t FlowNetwork::take_ended() {
    const uint32_t index = ends_.number();
    ends_.set(index, Earliest::NO_KEY);
    const uint32_t client = flows_[index].client;
    remove(index);
    update_next();
    return client;
}

const std::vector<FlowNetwork::Change> &FlowNetwork::settle(uint64_t now) {
    changes_.clear();
    const double time = static_cast<double>(now - epoch_);
    for (size_t i = 0; i < dirty_.size(); i++) {
        const uint32_t seed = dirty_[i];
        Flow &flow = flows_[seed];
        if (!flow.active) {
            flow.dirty = false;
            free_.push_back(seed);
        } else if (flow.dirty && !refill(seed, time)) {
            const double at = collect(seed, time);
            for (const uint32_t index : chosen_) {
                Flow &chosen = flows_[index];
                change_used(chosen, chosen.next_rate - chosen.rate, NO_RESOURCE);
                apply(index, chosen.next_rate, chosen.next_bottleneck, at);
            }
        }
    }
    dirty_.clear();
    update_next();
    return changes_;
}

void FlowNetwork::bind(Flow &flow, uint32_t bottleneck) {
    if (flow.bottleneck != NO_RESOURCE) {
        resources_[flow.bottleneck].bound--;
    }
    if (bottleneck != NO_RESOURCE) {
        resources_[bottleneck].bound++;
    }
    flow.bottleneck = bottleneck;
}

// Adds to what a flow takes of its resources. False if one of them, other than its bottleneck, may
// now be used up or is the bottleneck of others, or if units of a group matter: the flows over the
// whole group take of them too.
bool FlowNetwork::change_used(const Flow &flow, double by, uint32_t bottleneck) {
    bool free = true;
    for (const Edge &edge : flow.edges) {
        Resource &resource = resources_[edge.resource];
        resource.used += edge.coefficient * by;
        const bool grouped = resource.partial > 0 || resource.whole != edge.resource;
        if (grouped || (resource.limits && edge.resource != bottleneck &&
                        (resource.bound > 0 || resource.used > resource.capacity * NEARLY))) {
            free = false;
        }
    }
    return free;
}

// A guess: the bottleneck that a flow has, or the resource whose equal share is least.
uint32_t FlowNetwork::likely_bottleneck(const Flow &flow) const {
    if (flow.bottleneck != NO_RESOURCE) {
        return flow.bottleneck;
    }
    uint32_t likely = NO_RESOURCE;
    double least = 0;
    for (const Edge &edge : flow.edges) {
        const Resource &resource = resources_[edge.resource];
        if (resource.limits) {
            const double share = resource.capacity / static_cast<double>(resource.flows.size());
            if (likely == NO_RESOURCE || share < least) {
                likely = edge.resource;
                least = share;
            }
        }
    }
    return likely;
}

// The usual case, in which one resource is the bottleneck of all flows that get new rates, and no
// other resource is the bottleneck of any flow that shares it with them. False, and nothing is
// changed, in any other case; also if other flows are dirty, as sums taken in another order would
// round differently and flows that end at one instant could change places.
bool FlowNetwork::refill(uint32_t seed, double now) {
    const uint32_t bottleneck = likely_bottleneck(flows_[seed]);
    if (bottleneck == NO_RESOURCE) {
        return false;
    }
    const Resource &resource = resources_[bottleneck];
    if (!resource.limits || resource.partial > 0 || resource.whole != bottleneck ||
        out_of_date_ > resource.flows.size()) {
        return false;
    }
    chosen_.clear();
    uint32_t dirty = 0;
    double left = resource.capacity;
    double load = 0;
    double cap = flows_[seed].cap;
    double fastest = 0; // of the flows that keep their rates
    for (const Entry &entry : resource.flows) {
        const Flow &flow = flows_[entry.flow];
        if (flow.bottleneck == bottleneck || (flow.dirty && flow.bottleneck == NO_RESOURCE)) {
            chosen_.push_back(entry.flow);
            dirty += flow.dirty ? 1 : 0;
            load += entry.coefficient;
            cap = flow.cap < cap ? flow.cap : cap;
        } else if (flow.dirty) {
            return false;
        } else {
            left -= entry.coefficient * flow.rate;
            fastest = flow.rate > fastest ? flow.rate : fastest;
        }
    }
    const double rate = left / load;
    if (dirty != out_of_date_ || !(rate > 0 && rate < cap && fastest * SLIGHTLY_LESS <= rate)) {
        return false;
    }
    for (size_t i = 0; i < chosen_.size(); i++) {
        const Flow &flow = flows_[chosen_[i]];
        if (!change_used(flow, rate - flow.rate, bottleneck)) {
            for (size_t j = 0; j <= i; j++) {
                const Flow &changed = flows_[chosen_[j]];
                change_used(changed, changed.rate - rate, bottleneck);
            }
            return false;
        }
    }
    const double at = since(now);
    for (const uint32_t index : chosen_) {
        apply(index, rate, bottleneck, at);
    }
    return true;
}

// Since when new rates of the chosen flows apply; they are no longer dirty.
double FlowNetwork::since(double now) {
    bool started = false;
    double refill = 0;
    for (const uint32_t index : chosen_) {
        Flow &flow = flows_[index];
        if (flow.dirty) {
            flow.dirty = false;
            out_of_date_--;
            started |= flow.started;
            flow.started = false;
            refill = refill > flow.refill ? refill : flow.refill;
        }
    }
    return started ? now : refill;
}

void FlowNetwork::choose(uint32_t index) {
    flows_[index].chosen = visit_;
    chosen_.push_back(index);
}

// Computes new rates for a flow and all that depends on it; since when they apply.
double FlowNetwork::collect(uint32_t seed, double now) {
    visit_++;
    chosen_.clear();
    limits_.clear();
    choose(seed);
    size_t done = 0;
    do {
        for (; done < chosen_.size(); done++) {
            each_constraint(flows_[chosen_[done]], [&](uint32_t index, double) {
                Resource &resource = resources_[index];
                if (resource.visited == visit_) {
                    return;
                }
                resource.visited = visit_;
                limits_.push_back(index);
                each_flow(index, [&](uint32_t other, double) {
                    const Flow &candidate = flows_[other];
                    if (candidate.chosen != visit_ &&
                        (candidate.dirty || candidate.bottleneck == index)) {
                        choose(other);
                    }
                });
            });
        }
        fill();
    } while (extend());
    return since(now);
}

// Raises the rates of the chosen flows together, and freezes them one limit after the other. The
// other flows keep their rates.
void FlowNetwork::fill() {
    if (limits_.empty()) {
        for (const uint32_t index : chosen_) {
            Flow &flow = flows_[index];
            flow.next_rate = flow.cap;
            flow.next_bottleneck = NO_RESOURCE;
        }
        return;
    }
    for (const uint32_t index : limits_) {
        Resource &resource = resources_[index];
        double left = resource.capacity;
        double load = 0;
        uint32_t unfrozen = 0;
        uint32_t others = 0;
        each_flow(index, [&](uint32_t other, double coefficient) {
            const Flow &flow = flows_[other];
            if (flow.chosen == visit_) {
                load += coefficient;
                unfrozen++;
            } else {
                left -= coefficient * flow.rate;
                others++;
            }
        });
        resource.left = left;
        resource.load = load;
        resource.unfrozen = unfrozen;
        resource.others = others;
    }
    double cap = flows_[chosen_[0]].cap; // the lowest of all that are not frozen
    for (const uint32_t index : chosen_) {
        Flow &flow = flows_[index];
        flow.frozen = false;
        cap = flow.cap < cap ? flow.cap : cap;
    }
    size_t unfrozen = chosen_.size();
    if (limits_.size() == 1 && resources_[limits_[0]].unfrozen == unfrozen) {
        Resource &only = resources_[limits_[0]];
        const double level = only.left / only.load;
        if (level < cap && level > 0) {
            for (const uint32_t index : chosen_) {
                flows_[index].next_rate = level;
                flows_[index].next_bottleneck = limits_[0];
            }
            only.left = 0;
            return;
        }
    }
    while (unfrozen > 0) {
        double level = 0;
        uint32_t limit = NO_RESOURCE;
        for (const uint32_t index : limits_) {
            const Resource &resource = resources_[index];
            if (resource.unfrozen > 0) {
                const double reached = resource.left / resource.load;
                if (limit == NO_RESOURCE || reached < level) {
                    level = reached;
                    limit = index;
                }
            }
        }
        if (limit != NO_RESOURCE && level < cap) {
            level = level > 0 ? level : 0;
            each_flow(limit, [&](uint32_t index, double) {
                Flow &flow = flows_[index];
                if (flow.chosen == visit_ && !flow.frozen) {
                    freeze(flow, level, limit);
                    unfrozen--;
                }
            });
            continue;
        }
        // The flows with the lowest cap reach it before any limit.
        double next_cap = 0;
        bool another = false;
        for (const uint32_t index : chosen_) {
            Flow &flow = flows_[index];
            if (flow.frozen) {
                continue;
            }
            if (flow.cap <= cap) {
                freeze(flow, flow.cap, NO_RESOURCE);
                unfrozen--;
            } else if (!another || flow.cap < next_cap) {
                next_cap = flow.cap;
                another = true;
            }
        }
        cap = next_cap;
    }
}

void FlowNetwork::freeze(Flow &flow, double rate, uint32_t bottleneck) {
    flow.frozen = true;
    flow.next_rate = rate;
    flow.next_bottleneck = bottleneck;
    each_constraint(flow, [&](uint32_t at, double coefficient) {
        Resource &resource = resources_[at];
        if (resource.visited == visit_) {
            resource.left -= coefficient * rate;
            resource.load -= coefficient;
            resource.unfrozen--;
        }
    });
}

// Chooses the flows that are too fast for a chosen one, or have lost their bottleneck.
bool FlowNetwork::extend() {
    const size_t before = chosen_.size();
    for (const uint32_t index : limits_) {
        const Resource &resource = resources_[index];
        if (resource.others == 0) {
            continue;
        }
        double limited = -1; // rate of the chosen flows whose bottleneck it is
        double fastest = 0;  // of the chosen flows
        each_flow(index, [&](uint32_t other, double) {
            const Flow &flow = flows_[other];
            if (flow.chosen != visit_) {
                return;
            }
            fastest = flow.next_rate > fastest ? flow.next_rate : fastest;
            if (flow.next_bottleneck == index) {
                limited = flow.next_rate;
            }
        });
        const bool used_up = resource.left <= resource.capacity * (1 - SLIGHTLY_LESS);
        each_flow(index, [&](uint32_t other, double) {
            const Flow &flow = flows_[other];
            if (flow.chosen == visit_) {
                return;
            }
            const bool too_fast = limited >= 0 && flow.rate * SLIGHTLY_LESS > limited;
            const bool loose =
                flow.bottleneck == index && (!used_up || flow.rate < fastest * SLIGHTLY_LESS);
            if (too_fast || loose) {
                choose(other);
            }
        });
    }
    return chosen_.size() > before;
}

void FlowNetwork::apply(uint32_t index, double rate, uint32_t bottleneck, double at) {
    Flow &flow = flows_[index];
    if (flow.bottleneck != bottleneck) {
        bind(flow, bottleneck);
    }
    const Cause cause = bottleneck == NO_RESOURCE ? flow.cap_cause : resources_[bottleneck].cause;
    if (cause != flow.cause || flow.rate == 0) {
        flow.cause = cause;
        changes_.push_back({flow.client, cause});
    }
    if (rate == flow.rate) {
        return;
    }
    flow.remaining -= flow.rate * (at - flow.updated);
    if (flow.remaining < 0) {
        flow.remaining = 0;
    }
    flow.updated = at;
    flow.rate = rate;
    flow.ends = at + flow.remaining / flow.rate;
    ends_.set(index, flow.ends);
}

double FlowNetwork::rate_of(uint32_t client) const {
    for (const Flow &flow : flows_) {
        if (flow.active && flow.client == client) {
            return flow.rate;
        }
    }
    return 0;
}

void FlowNetwork::update_next() {
    const double ends = ends_.key();
    next_ = ends == Earliest::NO_KEY ? NEVER : end_time(epoch_, rounded(ends));
}

} // namespace kernloom
