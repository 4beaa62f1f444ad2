// Transfers that share bandwidth: a fluid network with max-min fair rates.
//
// A flow uses several resources at once; with rate r it takes coefficient * r of each. Rates rise
// together until a resource is used up or a flow reaches its own cap, then the others go on.
//
// A resource that all its flows together cannot use up, even at their caps, is left out of account.
// Every other flow has a bottleneck: a resource that is used up and on which no flow is faster.
// When flows start or end, new rates are computed for them and the flows they share a bottleneck
// with, and for more flows as long as one of the others has lost its bottleneck.
//
// Rates are in bytes per nanosecond, times in picoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cause.hpp"
#include "earliest.hpp"

namespace kernloom {

constexpr uint64_t NEVER = UINT64_MAX;

class FlowNetwork {
  public:
    struct Share {
        uint32_t resource;
        double coefficient;
    };

    struct Change {
        uint32_t client;
        Cause cause;
    };

    uint32_t add_resource(double capacity, Cause cause);

    // Equal units, such as the channels of an HBM. A flow over all of them uses the resource that
    // is returned, with all their capacity; the units are the next numbers.
    uint32_t add_group(uint32_t units, double unit_capacity, double capacity, Cause cause);

    // A flow that begins now. Its rate is set by the next `settle`. bytes > 0.
    void start(uint64_t now, uint64_t bytes, double cap, Cause cap_cause, const Share *shares,
               uint32_t count, uint32_t client);

    bool unsettled() const {
        return !dirty_.empty();
    }

    // New rates after flows have started and ended at this instant; the flows that are now limited
    // by something else.
    const std::vector<Change> &settle(uint64_t now);

    // When the next flow ends.
    uint64_t next() const {
        return next_;
    }

    // Takes the flow that ends next, and returns its client.
    uint32_t take_ended();

    // For tests: the rate of a client's flow.
    double rate_of(uint32_t client) const;

  private:
    static constexpr uint32_t NO_RESOURCE = UINT32_MAX;
    static constexpr uint32_t NO_FLOW = UINT32_MAX;
    static constexpr uint32_t FEW = 4;

    struct Edge {
        uint32_t resource;
        uint32_t position; // in the resource's list
        double coefficient;
    };

    // What most steps need comes first, in one cache line.
    struct alignas(64) Flow {
        double rate = 0;
        double cap;
        double remaining;    // thousandths of bytes, at `updated`
        double updated;      // time since the epoch
        double ends;         // Earliest::NO_KEY while it has no rate
        double refill;       // since when its rate is out of date, where dirty
        uint32_t bottleneck; // NO_RESOURCE: its own cap
        uint32_t client;
        Cause cause;
        Cause cap_cause;
        bool dirty = false;
        bool started; // since the last `settle`
        bool active = false;
        bool chosen = false; // to get a new rate
        uint16_t count;      // of edges

        Edge few[FEW];
        std::vector<Edge> more; // all edges, if they are more than a few
        double next_rate;       // while rates are computed
        uint32_t next_bottleneck;
        bool frozen;

        std::span<Edge> edges() {
            return {count > FEW ? more.data() : few, count};
        }

        std::span<const Edge> edges() const {
            return {count > FEW ? more.data() : few, count};
        }
    };

    struct Entry {
        uint32_t flow;
        uint32_t edge;
        double coefficient;
    };

    struct alignas(64) Resource {
        double capacity;
        double caps = 0; // what the flows take of it at their caps
        double used = 0; // and at their rates, where it limits
        std::vector<Entry> flows;
        uint32_t bound = 0;       // how many flows have it as bottleneck
        uint32_t first = NO_FLOW; // of these the one that ends first
        uint32_t whole;           // of its group; itself if it is none of its units
        uint32_t partial = 0;     // of a whole: how many edges its units have

        uint32_t units = 0; // of a group's whole
        Cause cause;
        bool visited = false; // while rates are computed
        uint32_t unfrozen;
        uint32_t others; // flows that keep their rates
        uint32_t next_first;
        double left;
        double load;
    };

    // How a resource matters for rates; 0: not at all. A byte each, as most are looked at for this
    // alone.
    enum Role : uint8_t {
        LIMITS = 1, // its flows could use it up
        SPLIT = 2,  // a group's whole: there are flows that use some of its units only
        UNIT = 4,   // of a group
    };

    void set_limits(uint32_t resource, bool limits);
    void update_caps(uint32_t resource, double by);
    template <typename Visit> void each_constraint(const Flow &flow, Visit visit);
    template <typename Visit> void each_flow(uint32_t resource, Visit visit);
    void mark(uint32_t flow, double refill);
    void mark_all(uint32_t resource, double refill);
    void remove(uint32_t flow);
    void bind(Flow &flow, uint32_t bottleneck);
    void apply(Flow &flow, double rate, Cause cause, double at);
    bool earlier(uint32_t flow, uint32_t other) const;
    void lead(uint32_t resource, uint32_t first);
    void rebind(uint32_t flow, uint32_t bottleneck);
    uint32_t first_bound(uint32_t resource);
    void update_next();

    // flow_refill.cpp
    bool unlimited(const Flow &flow) const;
    void give_cap(uint32_t flow, double now);
    bool refill(uint32_t seed, double now);
    uint32_t likely_bottleneck(const Flow &flow) const;
    bool take(const Flow &flow, double by, uint32_t bottleneck, bool alone);

    // flow_filling.cpp
    void fill_from(uint32_t seed, double now);
    void choose(uint32_t flow);
    void collect(uint32_t seed);
    void fill();
    void freeze(Flow &flow, double rate, uint32_t bottleneck);
    bool extend();
    void apply_chosen(double now);
    double since(double now);

    std::vector<Resource> resources_;
    std::vector<uint8_t> roles_; // of the resources
    std::vector<Flow> flows_;
    std::vector<uint32_t> free_;
    Earliest ends_; // of the flows that have no bottleneck, or are the first to end of its flows
    std::vector<uint32_t> dirty_;
    uint32_t out_of_date_ = 0; // how many of the dirty flows have not ended
    std::vector<Change> changes_;
    uint32_t active_ = 0;
    uint64_t epoch_ = 0; // start of the time in which the network has not been empty
    uint64_t next_ = NEVER;

    // The flows that are being given rates, and the resources that may limit them.
    std::vector<uint32_t> chosen_;
    std::vector<uint32_t> limits_;
};

} // namespace kernloom
