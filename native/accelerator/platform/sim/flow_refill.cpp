// New rates in the usual case: all flows that get one have the same bottleneck.
#include "flow_visits.hpp"

#include <cstddef>

namespace kernloom {

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

} // namespace kernloom
