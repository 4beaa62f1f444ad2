// Transfers that share bandwidth: a fluid network with max-min fair rates.
//
// A flow uses several resources at once; with rate r it takes coefficient * r of each. Rates rise
// together until a resource is used up or a flow reaches its own cap, then the others go on.
//
// A resource that all its flows together cannot use up, even at their caps, connects no flows: when
// a flow starts or ends, only the flows connected through limiting resources get new rates.
//
// Rates are in bytes per nanosecond, times in picoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "cause.hpp"
#include "slots.hpp"

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

  private:
    struct Edge {
        uint32_t resource;
        uint32_t position; // in the resource's list
        double coefficient;
    };

    struct Flow {
        double remaining; // bytes, at `updated`
        double updated;   // time since the epoch
        double rate;
        double cap;
        double ends;
        double refill; // when its rate has to change, where dirty
        uint64_t visited = 0;
        uint32_t heap_position;
        uint32_t client;
        Cause cause;
        Cause cap_cause;
        bool dirty = false;
        bool started; // since the last `settle`
        bool frozen;
        bool active = false;
        std::vector<Edge> edges;
    };

    struct Entry {
        uint32_t flow;
        uint32_t edge;
    };

    struct Resource {
        double capacity;
        double caps = 0; // what the flows take of it at their caps
        double left;     // while rates are computed
        double load;
        uint64_t visited = 0;
        uint32_t unfrozen;
        uint32_t whole;       // of its group; itself if it is none of its units
        uint32_t units = 0;   // of a group's whole
        uint32_t partial = 0; // of a whole: how many edges its units have
        Cause cause;
        std::vector<Entry> flows;
    };

    bool limiting(uint32_t resource) const;
    template <typename Visit> void each_constraint(const Flow &flow, Visit visit);
    template <typename Visit> void each_flow(uint32_t resource, Visit visit);
    void mark(uint32_t flow, double refill);
    void remove(uint32_t flow);
    double collect(uint32_t seed, double now);
    void fill();
    void freeze(uint32_t flow, double rate, Cause cause);
    void apply(uint32_t flow, double rate, Cause cause, double at);
    void update_next();

    bool earlier(uint32_t a, uint32_t b) const;
    void heap_place(uint32_t position, uint32_t flow);
    void heap_up(uint32_t position);
    void heap_down(uint32_t position);
    void heap_remove(uint32_t flow);

    std::vector<Resource> resources_;
    Slots<Flow> flows_;
    std::vector<uint32_t> heap_; // flows by their end
    std::vector<uint32_t> dirty_;
    std::vector<Change> changes_;
    uint32_t active_ = 0;
    uint64_t epoch_ = 0; // start of the time in which the network has not been empty
    uint64_t next_ = NEVER;
    uint64_t visit_ = 0;

    // The flows and limiting resources that are being given rates.
    std::vector<uint32_t> component_;
    std::vector<uint32_t> limits_;
    struct Result {
        double rate;
        Cause cause;
    };
    std::vector<Result> results_; // by flow
};

} // namespace kernloom
