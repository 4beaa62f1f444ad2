// Visits of a flow's constraints and of a resource's flows, and how exactly sums are compared.
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

} // namespace kernloom
