// Steps that the parts of the flow network share, and how exactly sums are compared.
#pragma once

#include "flow_network.hpp"

namespace kernloom {

// Sums of caps are kept up to date by adding and subtracting: equality is meant up to this.
constexpr double SLACK = 1 + 1e-9;
constexpr double SLIGHTLY_LESS = 1 - 1e-9;
// Sums of rates are kept the same way: a resource is near its capacity from here on.
constexpr double NEARLY = 1 - 1e-6;

// Visits what may limit a flow: a resource and the flow's coefficient there. A group limits as a
// whole as long as all its flows use all its units.
template <typename Visit>
[[gnu::always_inline]] inline void FlowNetwork::each_constraint(const Flow &flow, Visit visit) {
    for (const Edge &edge : flow.edges()) {
        const uint8_t role = roles_[edge.resource];
        if ((role & SPLIT) == 0) [[likely]] {
            if ((role & LIMITS) != 0) {
                visit(edge.resource, edge.coefficient);
            }
            continue;
        }
        const uint32_t units = resources_[edge.resource].units;
        for (uint32_t unit = 1; unit <= units; unit++) {
            if ((roles_[edge.resource + unit] & LIMITS) != 0) {
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

inline void FlowNetwork::bind(Flow &flow, uint32_t bottleneck) {
    if (flow.bottleneck != NO_RESOURCE) {
        resources_[flow.bottleneck].bound--;
    }
    if (bottleneck != NO_RESOURCE) {
        resources_[bottleneck].bound++;
    }
    flow.bottleneck = bottleneck;
}

// Gives a flow its new rate.
inline void FlowNetwork::apply(Flow &flow, double rate, Cause cause, double at) {
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
}

// Of flows that end together the one with the lower number is taken first.
inline bool FlowNetwork::earlier(uint32_t flow, uint32_t other) const {
    if (other == NO_FLOW) {
        return true;
    }
    return Earliest::Player(flows_[flow].ends, flow)
        .beats(Earliest::Player(flows_[other].ends, other));
}

// Which of the flows whose bottleneck it is ends first; only that one competes with others.
inline void FlowNetwork::lead(uint32_t index, uint32_t first) {
    Resource &resource = resources_[index];
    if (resource.first != first && resource.first != NO_FLOW) {
        ends_.set(resource.first, Earliest::NO_KEY);
    }
    resource.first = first;
    if (first != NO_FLOW) {
        ends_.set(first, flows_[first].ends);
    }
}

} // namespace kernloom
