#include "flow_network.hpp"

#include <algorithm>

namespace kernloom {

namespace {

// Sums of caps are kept up to date by adding and subtracting: equality is meant up to this.
constexpr double SLACK = 1 + 1e-9;

// Half a picosecond is rounded up, also where the division before came out a little too low.
uint64_t rounded(double time) {
    return time <= 0 ? 0 : static_cast<uint64_t>(time + (0.5 + 1e-6));
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

bool FlowNetwork::limiting(uint32_t index) const {
    const Resource &resource = resources_[index];
    double caps = resource.caps;
    if (resource.whole != index) {
        const Resource &whole = resources_[resource.whole];
        caps += whole.caps / whole.units;
    }
    return caps > resource.capacity * SLACK;
}

// Visits what bounds a flow: a resource and the flow's coefficient there. A group is bounded as a
// whole as long as all its flows use all its units.
template <typename Visit> void FlowNetwork::each_constraint(const Flow &flow, Visit visit) {
    for (const Edge &edge : flow.edges) {
        const Resource &resource = resources_[edge.resource];
        if (resource.partial == 0) {
            visit(edge.resource, edge.coefficient);
            continue;
        }
        const uint32_t units = resource.units;
        for (uint32_t unit = 1; unit <= units; unit++) {
            visit(edge.resource + unit, edge.coefficient / units);
        }
    }
}

template <typename Visit> void FlowNetwork::each_flow(uint32_t index, Visit visit) {
    for (const Entry &entry : resources_[index].flows) {
        visit(entry.flow);
    }
    const uint32_t whole = resources_[index].whole;
    if (whole != index) {
        for (const Entry &entry : resources_[whole].flows) {
            visit(entry.flow);
        }
    }
}

void FlowNetwork::mark(uint32_t index, double refill) {
    Flow &flow = flows_[index];
    if (!flow.dirty) {
        flow.dirty = true;
        flow.refill = refill;
        dirty_.push_back(index);
    } else if (refill > flow.refill) {
        flow.refill = refill;
    }
}

void FlowNetwork::start(uint64_t now, uint64_t bytes, double cap, Cause cap_cause,
                        const Share *shares, uint32_t count, uint32_t client) {
    if (active_++ == 0) {
        epoch_ = now;
    }
    const uint32_t index = flows_.acquire();
    if (results_.size() <= index) {
        results_.resize(index + 1);
    }
    Flow &flow = flows_[index];
    flow.remaining = static_cast<double>(bytes);
    flow.updated = static_cast<double>(now - epoch_);
    flow.rate = 0;
    flow.client = client;
    flow.started = true;
    flow.active = true;
    flow.dirty = false;
    flow.frozen = false;
    flow.heap_position = UINT32_MAX;
    flow.edges.clear();
    for (uint32_t i = 0; i < count; i++) {
        const Resource &resource = resources_[shares[i].resource];
        const double bound = resource.capacity / shares[i].coefficient;
        if (bound < cap) {
            cap = bound;
            cap_cause = resource.cause;
        }
    }
    flow.cap = cap;
    flow.cap_cause = cap_cause;
    flow.cause = cap_cause;
    for (uint32_t i = 0; i < count; i++) {
        Resource &resource = resources_[shares[i].resource];
        resource.caps += shares[i].coefficient * cap;
        if (resource.whole != shares[i].resource) {
            resources_[resource.whole].partial++;
        }
        flow.edges.push_back({shares[i].resource, static_cast<uint32_t>(resource.flows.size()),
                              shares[i].coefficient});
        resource.flows.push_back({index, i});
    }
    mark(index, flow.updated);
}

void FlowNetwork::remove(uint32_t index) {
    Flow &flow = flows_[index];
    const double ended = flow.ends;
    each_constraint(flow, [&](uint32_t resource, double) {
        if (limiting(resource)) {
            each_flow(resource, [&](uint32_t other) {
                if (other != index) {
                    mark(other, ended);
                }
            });
        }
    });
    for (const Edge &edge : flow.edges) {
        Resource &resource = resources_[edge.resource];
        const Entry last = resource.flows.back();
        resource.flows[edge.position] = last;
        flows_[last.flow].edges[last.edge].position = edge.position;
        resource.flows.pop_back();
        resource.caps -= edge.coefficient * flow.cap;
        if (resource.flows.empty()) {
            resource.caps = 0;
        }
        if (resource.whole != edge.resource) {
            resources_[resource.whole].partial--;
        }
    }
    flow.active = false;
    active_--;
    if (!flow.dirty) {
        flows_.release(index);
    }
}

uint32_t FlowNetwork::take_ended() {
    const uint32_t index = heap_.front();
    heap_remove(index);
    const uint32_t client = flows_[index].client;
    remove(index);
    update_next();
    return client;
}

const std::vector<FlowNetwork::Change> &FlowNetwork::settle(uint64_t now) {
    changes_.clear();
    visit_++;
    const double time = static_cast<double>(now - epoch_);
    for (size_t i = 0; i < dirty_.size(); i++) {
        const uint32_t seed = dirty_[i];
        Flow &flow = flows_[seed];
        if (!flow.active) {
            flow.dirty = false;
            flows_.release(seed);
            continue;
        }
        if (flow.visited == visit_) {
            continue;
        }
        const double at = collect(seed, time);
        fill();
        for (const uint32_t member : component_) {
            apply(member, results_[member].rate, results_[member].cause, at);
        }
    }
    dirty_.clear();
    update_next();
    return changes_;
}

// Finds the flows connected with one, and since when their rates are out of date.
double FlowNetwork::collect(uint32_t seed, double now) {
    component_.clear();
    limits_.clear();
    component_.push_back(seed);
    flows_[seed].visited = visit_;
    bool started = false;
    double refill = 0;
    for (size_t i = 0; i < component_.size(); i++) {
        Flow &flow = flows_[component_[i]];
        flow.frozen = false;
        if (flow.dirty) {
            flow.dirty = false;
            started |= flow.started;
            flow.started = false;
            refill = std::max(refill, flow.refill);
        }
        each_constraint(flow, [&](uint32_t index, double coefficient) {
            Resource &resource = resources_[index];
            if (resource.visited != visit_) {
                if (!limiting(index)) {
                    return;
                }
                resource.visited = visit_;
                resource.left = resource.capacity;
                resource.load = 0;
                resource.unfrozen = 0;
                limits_.push_back(index);
                each_flow(index, [&](uint32_t other) {
                    if (flows_[other].visited != visit_) {
                        flows_[other].visited = visit_;
                        component_.push_back(other);
                    }
                });
            }
            resource.load += coefficient;
            resource.unfrozen++;
        });
    }
    return started ? now : refill;
}

// Raises the rates of the collected flows together, and freezes them one limit after the other.
void FlowNetwork::fill() {
    size_t unfrozen = component_.size();
    if (limits_.empty()) {
        for (const uint32_t index : component_) {
            freeze(index, flows_[index].cap, flows_[index].cap_cause);
        }
        return;
    }
    while (unfrozen > 0) {
        double level = 0;
        uint32_t limit = UINT32_MAX;
        for (const uint32_t index : limits_) {
            const Resource &resource = resources_[index];
            if (resource.unfrozen > 0) {
                const double reached = resource.left / resource.load;
                if (limit == UINT32_MAX || reached < level) {
                    level = reached;
                    limit = index;
                }
            }
        }
        // Flows whose caps are below every limit keep their caps.
        double cap = 0;
        bool capped = false;
        for (const uint32_t index : component_) {
            const Flow &flow = flows_[index];
            if (!flow.frozen && (!capped || flow.cap < cap)) {
                cap = flow.cap;
                capped = true;
            }
        }
        if (limit == UINT32_MAX || cap <= level) {
            for (const uint32_t index : component_) {
                if (!flows_[index].frozen && flows_[index].cap <= cap) {
                    freeze(index, flows_[index].cap, flows_[index].cap_cause);
                    unfrozen--;
                }
            }
        } else {
            level = level > 0 ? level : 1e-9;
            each_flow(limit, [&](uint32_t index) {
                if (!flows_[index].frozen) {
                    freeze(index, level, resources_[limit].cause);
                    unfrozen--;
                }
            });
        }
    }
}

void FlowNetwork::freeze(uint32_t index, double rate, Cause cause) {
    Flow &flow = flows_[index];
    flow.frozen = true;
    results_[index] = {rate, cause};
    if (limits_.empty()) {
        return;
    }
    each_constraint(flow, [&](uint32_t at, double coefficient) {
        Resource &resource = resources_[at];
        if (resource.visited == visit_) {
            resource.left -= coefficient * rate;
            resource.load -= coefficient;
            resource.unfrozen--;
        }
    });
}

void FlowNetwork::apply(uint32_t index, double rate, Cause cause, double at) {
    Flow &flow = flows_[index];
    if (cause != flow.cause || flow.rate == 0) {
        flow.cause = cause;
        changes_.push_back({flow.client, cause});
    }
    if (rate == flow.rate) {
        return;
    }
    flow.remaining -= flow.rate * (at - flow.updated) / 1000;
    if (flow.remaining < 0) {
        flow.remaining = 0;
    }
    flow.updated = at;
    flow.rate = rate;
    flow.ends = at + flow.remaining * 1000 / rate;
    if (flow.heap_position == UINT32_MAX) {
        heap_.push_back(index);
        flow.heap_position = static_cast<uint32_t>(heap_.size() - 1);
    }
    heap_up(flow.heap_position);
    heap_down(flow.heap_position);
}

void FlowNetwork::update_next() {
    next_ = heap_.empty() ? NEVER : epoch_ + rounded(flows_[heap_.front()].ends);
}

bool FlowNetwork::earlier(uint32_t a, uint32_t b) const {
    const double x = flows_[a].ends;
    const double y = flows_[b].ends;
    return x < y || (x == y && a < b);
}

void FlowNetwork::heap_place(uint32_t position, uint32_t flow) {
    heap_[position] = flow;
    flows_[flow].heap_position = position;
}

void FlowNetwork::heap_up(uint32_t position) {
    const uint32_t flow = heap_[position];
    while (position > 0) {
        const uint32_t parent = (position - 1) / 2;
        if (!earlier(flow, heap_[parent])) {
            break;
        }
        heap_place(position, heap_[parent]);
        position = parent;
    }
    heap_place(position, flow);
}

void FlowNetwork::heap_down(uint32_t position) {
    const uint32_t flow = heap_[position];
    const uint32_t count = static_cast<uint32_t>(heap_.size());
    for (;;) {
        uint32_t child = 2 * position + 1;
        if (child >= count) {
            break;
        }
        if (child + 1 < count && earlier(heap_[child + 1], heap_[child])) {
            child++;
        }
        if (!earlier(heap_[child], flow)) {
            break;
        }
        heap_place(position, heap_[child]);
        position = child;
    }
    heap_place(position, flow);
}

void FlowNetwork::heap_remove(uint32_t flow) {
    const uint32_t position = flows_[flow].heap_position;
    const uint32_t last = heap_.back();
    heap_.pop_back();
    if (last != flow) {
        heap_place(position, last);
        heap_up(position);
        heap_down(flows_[last].heap_position);
    }
}

} // namespace kernloom
