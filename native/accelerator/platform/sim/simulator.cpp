#include "simulator.hpp"

namespace kernloom {

Simulator::Simulator(const Settings &settings, const char *text)
    : settings_(settings), text_(text), work_(settings.threads, settings.pes()) {
    if (settings_.trace_level > 0) {
        trace_ = std::make_unique<Trace>();
        issue_name_ = trace_->name("issue");
        translate_name_ = trace_->name("translate");
        latency_name_ = trace_->name("latency");
        transfer_name_ = trace_->name("transfer");
        load_name_ = trace_->name("load");
        store_name_ = trace_->name("store");
        unit_names_[KL_UNIT_MATRIX] = trace_->name("matrix");
        unit_names_[KL_UNIT_VECTOR] = trace_->name("vector");
        unit_names_[KL_UNIT_SCALAR] = trace_->name("scalar");
    }
    build();
}

Simulator::~Simulator() {
    for (size_t i = 0; i < states_.size(); i++) {
        const uint32_t kind = i == 0                     ? uint32_t{KL_NODE_HOST}
                              : i <= settings_.arch.sips ? uint32_t{KL_NODE_CONTROL}
                                                         : uint32_t{KL_NODE_PE};
        if (states_[i] != nullptr && programs_[kind]->close != nullptr) {
            programs_[kind]->close(states_[i]);
        }
    }
}

uint32_t Simulator::add_link(LinkKind kind, uint32_t server, uint32_t process,
                             const std::string &name) {
    static constexpr Cause CAUSE_OF[LINK_KINDS] = {Cause::PCIE, Cause::SCHEDULER, Cause::SCHEDULER,
                                                   Cause::NOC, Cause::SIP};
    const LinkCosts &costs = settings_.links[static_cast<uint32_t>(kind)];
    Link link = {};
    link.resource = network_.add_resource(costs.bandwidth, CAUSE_OF[static_cast<uint32_t>(kind)]);
    link.server = server;
    link.latency_ps = costs.latency_ps;
    link.kind = kind;
    link.track = trace_ ? trace_->add_track(process, name) : 0;
    links_.push_back(link);
    return static_cast<uint32_t>(links_.size() - 1);
}

void Simulator::build() {
    const kl_arch &arch = settings_.arch;
    states_.assign(1 + arch.sips + settings_.pes(), nullptr);
    accounts_.resize(settings_.pes());
    for (uint32_t i = 0; i < settings_.pes(); i++) {
        accounts_.set_type(i, arch.core_types[i % arch.pes]);
    }
    if (trace_) {
        host_track_ = trace_->add_track(trace_->add_process("host"), "host");
    }
    sips_.resize(arch.sips);
    cubes_.resize(size_t{arch.sips} * arch.cubes);
    for (uint32_t s = 0; s < arch.sips; s++) {
        Sip &sip = sips_[s];
        const uint32_t process = trace_ ? trace_->add_process("sip " + std::to_string(s)) : 0;
        const uint32_t server = static_cast<uint32_t>(servers_.size());
        servers_.resize(server + 2, 0);
        if (trace_) {
            sip.control_track = trace_->add_track(process, "control");
        }
        sip.pcie[0] = add_link(LinkKind::PCIE, NONE, process, "pcie down");
        sip.pcie[1] = add_link(LinkKind::PCIE, NONE, process, "pcie up");
        sip.io_cpu[0] = add_link(LinkKind::IO_CPU, server, process, "io cpu down");
        sip.io_cpu[1] = add_link(LinkKind::IO_CPU, server, process, "io cpu up");
        sip.management[0] = add_link(LinkKind::MANAGEMENT, server + 1, process, "management down");
        sip.management[1] = add_link(LinkKind::MANAGEMENT, server + 1, process, "management up");
        sip.in = add_link(LinkKind::SIP, NONE, process, "sip in");
        sip.out = add_link(LinkKind::SIP, NONE, process, "sip out");
        for (uint32_t c = 0; c < arch.cubes; c++) {
            Cube &cube = cubes_[s * arch.cubes + c];
            uint32_t own = 0;
            if (trace_) {
                own =
                    trace_->add_process("sip " + std::to_string(s) + " cube " + std::to_string(c));
                cube.hbm_track = trace_->add_track(own, "hbm");
            }
            cube.noc_in = add_link(LinkKind::NOC, NONE, own, "noc in");
            cube.noc_out = add_link(LinkKind::NOC, NONE, own, "noc out");
            cube.hbm = network_.add_group(settings_.hbm_channels,
                                          settings_.hbm_bandwidth / settings_.hbm_channels,
                                          settings_.hbm_bandwidth, Cause::HBM);
            cube.walkers.assign(settings_.walkers, 0);
            for (uint32_t p = 0; p < arch.pes; p++) {
                pes_.push_back(std::make_unique<Pe>());
                Pe &pe = *pes_.back();
                pe.node = {KL_NODE_PE, static_cast<uint16_t>(s), static_cast<uint16_t>(c),
                           static_cast<uint16_t>(p)};
                pe.index = static_cast<uint32_t>(pes_.size() - 1);
                pe.cube = s * arch.cubes + c;
                build_pe(pe.index);
                if (trace_) {
                    const std::string name = "pe " + std::to_string(p);
                    pe.track = trace_->add_track(
                        own, name + (arch.core_types[p] == KL_CORE_MATRIX ? " matrix" : " vector"));
                    idle_slices_.add_pe(pe.track, arch.core_types[p]);
                    for (uint32_t e = 0; e < settings_.engines; e++) {
                        pe.engine_tracks.push_back(
                            trace_->add_track(own, name + " dma " + std::to_string(e)));
                    }
                }
            }
        }
    }
    for (const kl_node &dead : settings_.faults.dead) {
        pes_[pe_number(dead)]->dead = true;
    }
}

void Simulator::build_pe(uint32_t index) {
    Pe &pe = *pes_[index];
    pe.engines.assign(settings_.engines, NONE);
    pe.sram = network_.add_group(settings_.sram_banks, settings_.sram_bank_bandwidth,
                                 settings_.sram_bank_bandwidth * settings_.sram_banks, Cause::SRAM);
    pe.tlb.resize(settings_.tlb_entries);
    pe.hbm.resize(settings_.arch.hbm_bytes);
    pe.sram_bytes.resize(settings_.arch.sram_bytes);
}

bool Simulator::known(kl_node node) const {
    const kl_arch &arch = settings_.arch;
    switch (node.kind) {
    case KL_NODE_HOST:
        return true;
    case KL_NODE_CONTROL:
        return node.sip < arch.sips;
    case KL_NODE_PE:
        return node.sip < arch.sips && node.cube < arch.cubes && node.pe < arch.pes;
    default:
        return false;
    }
}

uint32_t Simulator::pe_number(kl_node node) const {
    const kl_arch &arch = settings_.arch;
    return (node.sip * arch.cubes + node.cube) * arch.pes + node.pe;
}

uint32_t Simulator::number(kl_node node) const {
    switch (node.kind) {
    case KL_NODE_HOST:
        return 0;
    case KL_NODE_CONTROL:
        return 1 + node.sip;
    default:
        return 1 + settings_.arch.sips + pe_number(node);
    }
}

bool Simulator::attach(const kl_program *program, std::string &problem) {
    const std::string name = program->name != nullptr ? program->name : "program";
    if (program->abi != KL_PLATFORM_ABI || program->bytes != sizeof *program) {
        problem = name + ": built for another version of the platform's ABI";
        return false;
    }
    if (program->node_kind > KL_NODE_PE) {
        problem = name + ": there are no nodes of its kind";
        return false;
    }
    if (programs_[program->node_kind] != nullptr) {
        problem = name + ": another program runs on these nodes";
        return false;
    }
    programs_[program->node_kind] = program;
    std::vector<kl_node> nodes;
    if (program->node_kind == KL_NODE_HOST) {
        nodes.push_back({KL_NODE_HOST, 0, 0, 0});
    } else if (program->node_kind == KL_NODE_CONTROL) {
        for (uint32_t s = 0; s < settings_.arch.sips; s++) {
            nodes.push_back({KL_NODE_CONTROL, static_cast<uint16_t>(s), 0, 0});
        }
    } else {
        for (const auto &pe : pes_) {
            nodes.push_back(pe->node);
        }
    }
    for (const kl_node node : nodes) {
        void *state = program->open(&table, node, text_.c_str());
        if (state == nullptr) {
            problem = name + ": could not be opened";
            return false;
        }
        states_[number(node)] = state;
    }
    return true;
}

void *Simulator::state(kl_node node) const {
    return known(node) ? states_[number(node)] : nullptr;
}

const kl_program *Simulator::program_of(kl_node node) const {
    return states_[number(node)] != nullptr ? programs_[node.kind] : nullptr;
}

// After a delay, however long.
uint64_t Simulator::later(uint64_t delay_ps) const {
    return delay_ps < NEVER - now_ ? now_ + delay_ps : NEVER - 1;
}

void Simulator::after(kl_node node, uint64_t delay_ps, uint64_t token) {
    if (!known(node)) {
        return;
    }
    const uint32_t timer = timers_.acquire();
    timers_[timer] = {number(node), token};
    if (node.kind == KL_NODE_PE) {
        Pe &pe = *pes_[pe_number(node)];
        pe.control++;
        refresh(pe);
    }
    queue_.push(later(delay_ps), TIMER, timer);
}

void Simulator::fire(uint32_t index) {
    const Timer timer = timers_[index];
    timers_.release(index);
    uint32_t kind = KL_NODE_CONTROL;
    if (timer.node == 0) {
        kind = KL_NODE_HOST;
    } else if (timer.node > settings_.arch.sips) {
        kind = KL_NODE_PE;
        Pe &pe = *pes_[timer.node - 1 - settings_.arch.sips];
        pe.control--;
        refresh(pe);
        if (pe.dead) {
            return;
        }
    }
    void *state = states_[timer.node];
    if (state != nullptr && programs_[kind]->timer != nullptr) {
        programs_[kind]->timer(state, timer.token);
    }
}

// Flows that end come before events of the same instant; rates change before time goes on.
bool Simulator::run() {
    if (running_) {
        return false;
    }
    running_ = true;
    stopped_ = false;
    while (!stopped_) {
        const uint64_t next_event = queue_.empty() ? NEVER : queue_.top().time;
        if (network_.unsettled() && next_event > now_ && network_.next() > now_) {
            settle_flows();
        }
        if (network_.next() <= next_event) {
            if (network_.next() == NEVER) {
                break;
            }
            now_ = network_.next();
            events_++;
            flow_ended(network_.take_ended());
            continue;
        }
        now_ = next_event;
        events_++;
        handle(queue_.pop());
    }
    running_ = false;
    return stopped_;
}

void Simulator::settle_flows() {
    for (const FlowNetwork::Change &change : network_.settle(now_)) {
        if ((change.client & MESSAGE_CLIENT) == 0) {
            Copy &copy = copies_[change.client];
            copy.cause = change.cause;
            refresh_waiting(*pes_[copy.pe]);
        }
    }
}

void Simulator::flow_ended(uint32_t client) {
    if ((client & MESSAGE_CLIENT) != 0) {
        end_hop(client & ~MESSAGE_CLIENT);
    } else {
        part_ended(client);
    }
}

void Simulator::handle(const Event &event) {
    switch (event.kind()) {
    case TIMER:
        fire(event.argument());
        break;
    case HOP:
        continue_hop(event.argument());
        break;
    case DELIVER:
        deliver(event.argument());
        break;
    case COPY:
        step_copy(event.argument());
        break;
    case COMPUTED:
        advance(*pes_[event.argument()]);
        break;
    case TASK_ENDED:
        end_task(*pes_[event.argument()]);
        break;
    }
}

uint32_t Simulator::track_of(kl_node node) const {
    if (node.kind == KL_NODE_CONTROL) {
        return sips_[node.sip].control_track;
    }
    return node.kind == KL_NODE_PE ? pes_[pe_number(node)]->track : host_track_;
}

void Simulator::slice(kl_node node, const char *name, uint64_t begin_ps, uint64_t end_ps) {
    if (traces(WAITS) && known(node) && end_ps >= begin_ps) {
        trace_->add(track_of(node), trace_->name(name), begin_ps, end_ps);
    }
}

void Simulator::flow(kl_node from, uint64_t from_ps, kl_node to, uint64_t to_ps) {
    if (traces(WAITS) && known(from) && known(to)) {
        trace_->add_flow(track_of(from), from_ps, track_of(to), to_ps);
    }
}

void Simulator::count(kl_node node, const char *name, uint64_t value) {
    if (traces(WAITS) && known(node)) {
        trace_->add_counter(track_of(node), trace_->name(name), now_, value);
    }
}

const std::string &Simulator::trace_text() {
    if (!trace_) {
        report_.clear();
        return report_;
    }
    return trace_->json();
}

} // namespace kernloom
