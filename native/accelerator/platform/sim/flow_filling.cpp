// New rates in the general case, by progressive filling.
#include "flow_steps.hpp"

#include <cstddef>

namespace kernloom {

void FlowNetwork::choose(uint32_t index) {
    flows_[index].chosen = true;
    chosen_.push_back(index);
}

// New rates for a flow and all that depends on it.
void FlowNetwork::fill_from(uint32_t seed, double now) {
    collect(seed);
    apply_chosen(now);
}

void FlowNetwork::collect(uint32_t seed) {
    chosen_.clear();
    limits_.clear();
    choose(seed);
    size_t done = 0;
    do {
        for (; done < chosen_.size(); done++) {
            each_constraint(flows_[chosen_[done]], [&](uint32_t index, double) {
                Resource &resource = resources_[index];
                if (resource.visited) {
                    return;
                }
                resource.visited = true;
                resource.next_first = NO_FLOW;
                limits_.push_back(index);
                each_flow(index, [&](uint32_t other, double) {
                    const Flow &candidate = flows_[other];
                    if (!candidate.chosen && (candidate.dirty || candidate.bottleneck == index)) {
                        choose(other);
                    }
                });
            });
        }
        fill();
    } while (extend());
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
            if (flow.chosen) {
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
                if (flow.chosen && !flow.frozen) {
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
        if (resource.visited) {
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
            if (!flow.chosen) {
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
            if (flow.chosen) {
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

void FlowNetwork::apply_chosen(double now) {
    const double at = since(now);
    for (const uint32_t index : chosen_) {
        Flow &flow = flows_[index];
        const uint32_t bottleneck = flow.next_bottleneck;
        flow.chosen = false;
        for (const Edge &edge : flow.edges()) {
            if ((roles_[edge.resource] & LIMITS) != 0) {
                resources_[edge.resource].used += edge.coefficient * (flow.next_rate - flow.rate);
            }
        }
        if (flow.bottleneck != bottleneck) {
            rebind(index, bottleneck);
        }
        if (bottleneck == NO_RESOURCE) {
            apply(flow, flow.next_rate, flow.cap_cause, at);
            ends_.set(index, flow.ends);
        } else {
            Resource &resource = resources_[bottleneck];
            apply(flow, flow.next_rate, resource.cause, at);
            resource.next_first = earlier(index, resource.next_first) ? index : resource.next_first;
        }
    }
    // All flows whose bottleneck is one of the limits have been chosen.
    for (const uint32_t index : limits_) {
        resources_[index].visited = false;
        lead(index, resources_[index].next_first);
    }
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
