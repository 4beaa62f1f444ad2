// The hardware in virtual time: one event loop over messages, copies, tasks and timers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "accounts.hpp"
#include "critical_path.hpp"
#include "event_queue.hpp"
#include "flow_network.hpp"
#include "idle_slices.hpp"
#include "memory.hpp"
#include "mmu.hpp"
#include "settings.hpp"
#include "slots.hpp"
#include "trace.hpp"
#include "work_pool.hpp"

#include "kernloom/platform.h"

namespace kernloom {

constexpr uint32_t NONE = UINT32_MAX;

// One direction of a link.
struct Link {
    uint32_t resource; // its bandwidth
    uint32_t server;   // the CPU that handles each message, or NONE
    uint64_t latency_ps;
    LinkKind kind;
    uint32_t track;
    uint64_t bytes = 0; // that have passed
};

class Simulator {
  public:
    explicit Simulator(const Settings &settings, const char *text);
    ~Simulator();
    Simulator(const Simulator &) = delete;
    Simulator &operator=(const Simulator &) = delete;

    bool attach(const kl_program *program, std::string &problem);
    void *state(kl_node node) const;

    const kl_arch &arch() const {
        return settings_.arch;
    }
    uint64_t now() const {
        return now_;
    }
    void send(kl_node from, kl_node to, const void *message, size_t bytes, uint64_t bulk);
    void after(kl_node node, uint64_t delay_ps, uint64_t token);
    bool run();
    void stop() {
        stopped_ = true;
    }

    Memory *memory(kl_node pe, uint64_t &address);
    bool map(kl_node pe, const kl_map_entry *entries, size_t count);
    bool unmap(kl_node pe, uint64_t address, uint64_t bytes);
    bool load(kl_node pe, void *to, uint64_t from, const kl_rows &rows, kl_fault &fault);
    bool store(kl_node pe, uint64_t to, const void *from, const kl_rows &rows, kl_fault &fault);

    void replay(kl_node pe, uint64_t task, const char *label, const kl_action *actions,
                size_t count);
    void meet(kl_node pe, uint64_t group, uint32_t count, uint64_t token);
    void waiting(uint32_t core_type, uint32_t why);
    void dispatched(kl_node pe);
    void path(const kl_stretch *stretches, size_t count);
    void note(const char *lines);
    void slice(kl_node node, const char *name, uint64_t begin_ps, uint64_t end_ps);
    void flow(kl_node from, uint64_t from_ps, kl_node to, uint64_t to_ps);
    void count(kl_node node, const char *name, uint64_t value);

    void start_work(kl_node pe, WorkPool::Work work, void *context);
    void finish_work(kl_node pe);

    const std::string &trace_text();
    void begin_report();
    const std::string &report();

    // For tests: what a PE has spent its time on since `begin_report`, and bytes that have left and
    // arrived at the ports of a kind of link.
    const Accounts &settled_accounts();
    uint64_t port_bytes(LinkKind kind, bool arrived) const;
    uint64_t events() const {
        return events_;
    }

    struct kl_platform table;

  private:
    // What each level of the trace adds.
    enum TraceLevel : uint32_t { TASKS = 1, WAITS = 2, TRANSFERS = 3, MESSAGES = 4 };

    bool traces(TraceLevel level) const {
        return settings_.trace_level >= level;
    }
    uint32_t track_of(kl_node node) const;

    enum EventKind : uint32_t { TIMER, HOP, DELIVER, COPY, COMPUTED, TASK_ENDED };

    // Events with the same delay: none, the issue of a copy, a TLB hit, the path of a copy inside a
    // cube, over the NoC or between sips, the NoC hop of a message.
    enum Lane : uint32_t {
        NOW_LANE,
        ISSUE_LANE,
        HIT_LANE,
        CUBE_LANE,
        NOC_LANE,
        SIP_LANE,
        HOP_LANE,
    };
    static_assert(HOP_LANE < EventQueue::LANES);

    static constexpr uint32_t MOST_HOPS = 8;
    static constexpr uint32_t MESSAGE_CLIENT = 1u << 31; // marks flows of messages

    struct Timer {
        uint32_t node;
        uint64_t token;
    };

    struct Message {
        kl_node from;
        kl_node to;
        uint64_t bulk;
        uint64_t number;
        uint64_t hop_begin;
        uint32_t hops[MOST_HOPS];
        uint32_t count;
        uint32_t at;
        uint32_t pe;   // whose scheduling it serves, or NONE
        uint32_t name; // in the trace
        std::vector<unsigned char> data;
    };

    // What a copy moves from or to one owner's memory.
    struct Part {
        uint32_t owner;
        bool sram;
        uint64_t units; // channels or banks, as a mask
        uint64_t bytes;
    };

    struct Path {
        uint64_t latency_ps;
        uint32_t lane;
    };

    enum class Phase : uint8_t { QUEUED, ISSUE, HIT, WALK, LATENCY, FLOW };

    // What most steps need comes first, in one cache line.
    struct Copy {
        uint32_t pe;
        uint32_t engine;
        uint32_t tag;
        uint32_t newer; // next of the PE's unfinished copies
        uint32_t older;
        uint32_t next;  // queued for an engine after this one
        uint32_t walks; // that are left
        uint32_t part;
        Phase phase;
        Cause cause;
        bool load;
        uint64_t phase_begin;
        uint64_t begin;
        uint64_t sram_banks;
        std::vector<Part> parts;
        uint64_t address;
        uint64_t sram;
        kl_rows rows;
    };

    // A PE that waits for others.
    struct Arrival {
        uint32_t pe;
        uint64_t token;
    };

    struct Task {
        uint64_t number;
        uint32_t label;
        std::vector<kl_action> actions;
    };

    enum class Doing : uint8_t { NOTHING, ISSUING, COMPUTING, WAITING, DRAINING, ENDING };

    struct Pe {
        kl_node node;
        uint32_t index;
        uint32_t cube; // of all sips
        bool dead = false;
        Doing doing = Doing::NOTHING;
        uint32_t unit = 0;
        uint32_t awaited = NONE;
        uint32_t oldest = NONE; // unfinished copy
        uint32_t newest = NONE;
        uint32_t queue_first = NONE; // copies that wait for an engine
        uint32_t queue_last = NONE;
        uint32_t control = 0; // messages and timers on the way
        size_t next_action = 0;
        uint64_t task_begin = 0;
        Spent before = {}; // what it had spent when the task began
        TaskLog log;       // if times are kept
        uint32_t task = NONE;
        std::vector<uint32_t> tasks;   // that wait for their turn
        std::vector<uint32_t> engines; // the copy on each, or NONE
        uint32_t sram;                 // resource
        uint32_t track;
        std::vector<uint32_t> engine_tracks;
        Mmu mmu;
        Tlb tlb;
        Memory hbm;
        Memory sram_bytes;
    };

    struct Cube {
        uint32_t hbm; // resource
        uint32_t hbm_track;
        uint32_t noc_in;
        uint32_t noc_out;
        std::vector<uint64_t> walkers; // when each is free
    };

    struct Sip {
        uint32_t pcie[2]; // links: down, up
        uint32_t io_cpu[2];
        uint32_t management[2];
        uint32_t in;
        uint32_t out;
        uint32_t control_track;
        uint64_t noc_sent = 0; // by the management CPU
        uint64_t noc_received = 0;
    };

    // simulator.cpp
    void build();
    void build_pe(uint32_t index);
    uint32_t add_link(LinkKind kind, uint32_t server, uint32_t process, const std::string &name);
    bool known(kl_node node) const;
    uint32_t number(kl_node node) const;
    uint32_t pe_number(kl_node node) const;
    const kl_program *program_of(kl_node node) const;
    uint64_t later(uint64_t delay_ps) const;
    void handle(const Event &event);
    void settle_flows();
    void flow_ended(uint32_t client);
    void fire(uint32_t timer);

    // messages.cpp
    void route(Message &message);
    void begin_hop(uint32_t message);
    void continue_hop(uint32_t message);
    void end_hop(uint32_t message);
    void deliver(uint32_t message);
    uint32_t message_name(const Message &message);

    // access.cpp
    template <typename Touch>
    bool access(Pe &pe, uint64_t address, const kl_rows &rows, kl_fault &fault, Touch touch);

    // copies.cpp
    void start_copy(Pe &pe, const kl_action &action);
    void take_engine(Pe &pe, uint32_t copy, uint32_t engine);
    void step_copy(uint32_t copy);
    void plan_copy(Pe &pe, Copy &copy);
    void plan_mapped(Pe &pe, Copy &copy, const kl_map_entry &entry, uint64_t address,
                     const kl_rows &rows);
    void plan_physical(Copy &copy, uint32_t owner, uint64_t address, const kl_rows &rows);
    Path path_of(const Pe &pe, const Copy &copy) const;
    void begin_walk(Pe &pe, uint32_t copy);
    void begin_latency(Pe &pe, uint32_t copy);
    void begin_part(uint32_t copy);
    void part_ended(uint32_t copy);
    void finish_copy(uint32_t copy);
    void set_phase(uint32_t copy, Phase phase, Cause cause);

    // tasks.cpp
    void begin_task(Pe &pe);
    void advance(Pe &pe);
    void end_task(Pe &pe);
    bool unfinished(const Pe &pe, uint32_t tag, uint32_t &copy) const;
    Cause cause_of(const Pe &pe) const;
    void refresh(const Pe &pe);
    void refresh_waiting(const Pe &pe);

    // report.cpp
    void add_path();
    void add_pes(const std::vector<Spent> &spent);

    const Settings settings_;
    const std::string text_;
    EventQueue queue_;
    FlowNetwork network_;
    Accounts accounts_;
    CriticalPath path_;
    std::string notes_;
    std::unique_ptr<Trace> trace_;
    IdleSlices idle_slices_;
    std::vector<Link> links_;
    std::vector<uint64_t> servers_; // when each CPU is free
    std::vector<Sip> sips_;
    std::vector<Cube> cubes_;
    std::vector<std::unique_ptr<Pe>> pes_;
    Slots<Timer> timers_;
    Slots<Message> messages_;
    Slots<Copy> copies_;
    Slots<Task> tasks_;
    std::vector<FlowNetwork::Share> shares_;
    std::unordered_map<uint64_t, std::vector<Arrival>> meetings_; // by group
    const kl_program *programs_[3] = {};
    std::vector<void *> states_; // by node
    uint64_t now_ = 0;
    uint64_t events_ = 0;
    uint64_t events_before_ = 0;
    uint64_t report_begin_ = 0;
    uint64_t sent_ = 0;
    uint64_t hbm_bytes_ = 0;
    uint64_t sram_bytes_ = 0;
    uint64_t sram_peak_ = 0;
    uint64_t tasks_run_ = 0;
    uint64_t messages_run_ = 0;
    uint32_t host_track_ = 0;
    uint32_t issue_name_ = 0;
    uint32_t translate_name_ = 0;
    uint32_t latency_name_ = 0;
    uint32_t transfer_name_ = 0;
    uint32_t load_name_ = 0;
    uint32_t store_name_ = 0;
    uint32_t unit_names_[KL_UNITS] = {};
    bool running_ = false;
    bool stopped_ = false;
    std::string report_;
    WorkPool work_; // last: its threads use the memories
};

} // namespace kernloom
