// New rates in the usual cases: nothing limits a flow but its cap, or all flows that get new rates
// have the same bottleneck.
#include "flow_steps.hpp"

#include <cstddef>

namespace kernloom {

bool FlowNetwork::unlimited(const Flow &flow) const {
    uint8_t roles = 0;
    for (const Edge &edge : flow.edges()) {
        roles |= roles_[edge.resource] & (LIMITS | SPLIT);
    }
    return roles == 0;
}

void FlowNetwork::give_cap(uint32_t index, double now) {
    Flow &flow = flows_[index];
    const double at = flow.started ? now : flow.refill;
    flow.dirty = false;
    flow.started = false;
    out_of_date_--;
    if (flow.bottleneck != NO_RESOURCE) {
        rebind(index, NO_RESOURCE);
    }
    apply(flow, flow.cap, flow.cap_cause, at);
    ends_.set(index, flow.ends);
}

// A guess: the bottleneck that a flow has, or the resource whose equal share is least.
uint32_t FlowNetwork::likely_bottleneck(const Flow &flow) const {
    if (flow.bottleneck != NO_RESOURCE) {
        return flow.bottleneck;
    }
    uint32_t likely = NO_RESOURCE;
    double least = 0;
    for (const Edge &edge : flow.edges()) {
        if ((roles_[edge.resource] & LIMITS) != 0) {
            const Resource &resource = resources_[edge.resource];
            const double share = resource.capacity / static_cast<double>(resource.flows.size());
            if (likely == NO_RESOURCE || share < least) {
                likely = edge.resource;
                least = share;
            }
        }
    }
    return likely;
}

// Adds to what a flow takes of its resources other than its bottleneck. False if one of them may
// now be used up or is the bottleneck of others, or if units of a group matter: the flows over the
// whole group take of them too. If there are other dirty flows (the flow is not alone), false if
// there is any such resource.
[[gnu::always_inline]] inline bool FlowNetwork::take(const Flow &flow, double by,
                                                     uint32_t bottleneck, bool alone) {
    bool free = true;
    for (const Edge &edge : flow.edges()) {
        const uint8_t role = roles_[edge.resource];
        if (role == 0 || edge.resource == bottleneck) {
            continue;
        }
        Resource &resource = resources_[edge.resource];
        resource.used += edge.coefficient * by;
        free &= alone & (role == LIMITS) & (resource.bound == 0) &
                (resource.used <= resource.capacity * NEARLY);
    }
    return free;
}

// True if the new rates are a usual case. False, and nothing is changed, if another resource may be
// the bottleneck of a flow that shares it with them, and if other dirty flows may depend on them:
// sums taken in another order would round differently, and flows that end at one instant could
// change places.
bool FlowNetwork::refill(uint32_t seed, double now) {
    if (unlimited(flows_[seed])) {
        give_cap(seed, now);
        return true;
    }
    const uint32_t bottleneck = likely_bottleneck(flows_[seed]);
    if (bottleneck == NO_RESOURCE || roles_[bottleneck] != LIMITS) {
        return false;
    }
    Resource &resource = resources_[bottleneck];
    chosen_.clear();
    uint32_t dirty = 0;
    bool started = false;
    double since = 0;
    double left = resource.capacity;
    double load = 0;
    double cap = flows_[seed].cap;
    double fastest = 0; // of the flows that keep their rates
    for (const Entry &entry : resource.flows) {
        const Flow &flow = flows_[entry.flow];
        if (flow.bottleneck == bottleneck || (flow.dirty && flow.bottleneck == NO_RESOURCE)) {
            chosen_.push_back(entry.flow);
            load += entry.coefficient;
            cap = flow.cap < cap ? flow.cap : cap;
            if (flow.dirty) {
                dirty++;
                started |= flow.started;
                since = flow.refill > since ? flow.refill : since;
            }
        } else if (flow.dirty) {
            return false;
        } else {
            left -= entry.coefficient * flow.rate;
            fastest = flow.rate > fastest ? flow.rate : fastest;
        }
    }
    const double rate = left / load;
    if (!(rate > 0 && rate < cap && fastest * SLIGHTLY_LESS <= rate)) {
        return false;
    }
    const bool alone = dirty == out_of_date_;
    for (size_t i = 0; i < chosen_.size(); i++) {
        const Flow &flow = flows_[chosen_[i]];
        if (!take(flow, rate - flow.rate, bottleneck, alone)) {
            for (size_t j = 0; j <= i; j++) {
                const Flow &taken = flows_[chosen_[j]];
                take(taken, taken.rate - rate, bottleneck, alone);
            }
            return false;
        }
    }
    resource.used = resource.capacity;
    const double at = started ? now : since;
    uint32_t first = NO_FLOW;
    for (const uint32_t index : chosen_) {
        Flow &flow = flows_[index];
        if (flow.dirty) {
            flow.dirty = false;
            flow.started = false;
            out_of_date_--;
        }
        if (flow.bottleneck != bottleneck) {
            rebind(index, bottleneck);
        }
        apply(flow, rate, resource.cause, at);
        first = earlier(index, first) ? index : first;
    }
    lead(bottleneck, first);
    return true;
}

} // namespace kernloom
