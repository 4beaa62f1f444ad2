#include "flow_network.hpp"

#include <cstddef>

#include "flow_visits.hpp"

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
