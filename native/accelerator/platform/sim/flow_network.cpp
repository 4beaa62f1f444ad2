#include "flow_network.hpp"

#include <cstddef>

#include "flow_steps.hpp"

namespace kernloom {

namespace {

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
    roles_.push_back(0);
    return index;
}

uint32_t FlowNetwork::add_group(uint32_t units, double unit_capacity, double capacity,
                                Cause cause) {
    const uint32_t whole = add_resource(capacity, cause);
    resources_[whole].units = units;
    for (uint32_t i = 0; i < units; i++) {
        const uint32_t unit = add_resource(unit_capacity, cause);
        resources_[unit].whole = whole;
        roles_[unit] = UNIT;
    }
    return whole;
}

void FlowNetwork::set_limits(uint32_t index, bool limits) {
    uint8_t &role = roles_[index];
    if (limits == ((role & LIMITS) != 0)) {
        return;
    }
    role ^= LIMITS;
    if (role == LIMITS) {
        Resource &resource = resources_[index];
        resource.used = 0;
        for (const Entry &entry : resource.flows) {
            resource.used += entry.coefficient * flows_[entry.flow].rate;
        }
    }
}

// Changes what the flows of a resource take at their caps.
void FlowNetwork::update_caps(uint32_t index, double by) {
    Resource &resource = resources_[index];
    resource.caps = resource.flows.empty() ? 0 : resource.caps + by;
    const Resource &whole = resources_[resource.whole];
    if (whole.units == 0 || (resource.units > 0 && whole.partial == 0)) {
        set_limits(index, resource.caps > resource.capacity * SLACK);
        return;
    }
    for (uint32_t unit = resource.whole + 1; unit <= resource.whole + whole.units; unit++) {
        const Resource &one = resources_[unit];
        set_limits(unit, one.caps + whole.caps / whole.units > one.capacity * SLACK);
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
    flow.ends = Earliest::NO_KEY;
    flow.bottleneck = NO_RESOURCE;
    flow.client = client;
    flow.cause = cap_cause;
    flow.cap_cause = cap_cause;
    flow.dirty = false;
    flow.started = true;
    flow.active = true;
    flow.count = static_cast<uint16_t>(count);
    if (count > FEW) {
        flow.more.resize(count);
    }
    const std::span<Edge> edges = flow.edges();
    for (uint32_t i = 0; i < count; i++) {
        Resource &resource = resources_[shares[i].resource];
        if (resource.whole != shares[i].resource && resources_[resource.whole].partial++ == 0) {
            roles_[resource.whole] |= SPLIT;
            mark_all(resource.whole, time); // from now on bounded by the units
        }
        edges[i] = {shares[i].resource, static_cast<uint32_t>(resource.flows.size()),
                    shares[i].coefficient};
        resource.flows.push_back({index, i, shares[i].coefficient});
        update_caps(shares[i].resource, shares[i].coefficient * cap);
    }
    mark(index, time);
}

void FlowNetwork::remove(uint32_t index) {
    Flow &flow = flows_[index];
    const double ended = flow.ends;
    const uint32_t bottleneck = flow.bottleneck;
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
    if (bottleneck != NO_RESOURCE) {
        // Those that end later get new rates, and thus another first one, before they do.
        const uint32_t first = first_bound(bottleneck);
        const bool now = first != NO_FLOW && rounded(flows_[first].ends) <= rounded(ended);
        lead(bottleneck, now ? first : NO_FLOW);
    }
    for (const Edge &edge : flow.edges()) {
        Resource &resource = resources_[edge.resource];
        const Entry last = resource.flows.back();
        resource.flows[edge.position] = last;
        flows_[last.flow].edges()[last.edge].position = edge.position;
        resource.flows.pop_back();
        resource.used = resource.flows.empty() ? 0 : resource.used - edge.coefficient * flow.rate;
        if (resource.whole != edge.resource && --resources_[resource.whole].partial == 0) {
            roles_[resource.whole] &= static_cast<uint8_t>(~SPLIT);
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
    if (flows_[index].bottleneck == NO_RESOURCE) {
        ends_.set(index, Earliest::NO_KEY);
    }
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
            fill_from(seed, time);
        }
    }
    dirty_.clear();
    update_next();
    return changes_;
}

// A flow leaves its bottleneck and, for now, competes with no other for the next end.
void FlowNetwork::rebind(uint32_t index, uint32_t bottleneck) {
    const uint32_t before = flows_[index].bottleneck;
    bind(flows_[index], bottleneck);
    if (before == NO_RESOURCE) {
        ends_.set(index, Earliest::NO_KEY);
    } else if (resources_[before].first == index) {
        lead(before, resources_[before].visited ? NO_FLOW : first_bound(before));
    }
}

// Of the flows whose bottleneck a resource is, the one that ends first.
uint32_t FlowNetwork::first_bound(uint32_t resource) {
    uint32_t first = NO_FLOW;
    if (resources_[resource].bound > 0) {
        each_flow(resource, [&](uint32_t flow, double) {
            if (flows_[flow].bottleneck == resource && earlier(flow, first)) {
                first = flow;
            }
        });
    }
    return first;
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
