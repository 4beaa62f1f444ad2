// Messages: host, PCIe, IO CPU, management CPU, NoC, PE, and the same way back.
#include "simulator.hpp"

namespace kernloom {

namespace {

std::string node_text(kl_node node) {
    switch (node.kind) {
    case KL_NODE_HOST:
        return "host";
    case KL_NODE_CONTROL:
        return "control " + std::to_string(node.sip);
    default:
        return "pe " + std::to_string(node.sip) + "." + std::to_string(node.cube) + "." +
               std::to_string(node.pe);
    }
}

} // namespace

// Control programs run on the management CPUs, PEs are behind the NoC port of their cube.
void Simulator::route(Message &message) {
    message.count = 0;
    const auto hop = [&message](uint32_t link) { message.hops[message.count++] = link; };
    const kl_node from = message.from;
    const kl_node to = message.to;
    if (from.kind == KL_NODE_HOST) {
        if (to.kind != KL_NODE_HOST) {
            const Sip &sip = sips_[to.sip];
            hop(sip.pcie[0]);
            hop(sip.io_cpu[0]);
            hop(sip.management[0]);
        }
    } else if (from.kind == KL_NODE_PE) {
        hop(cubes_[pes_[pe_number(from)]->cube].noc_out);
    }
    if (to.kind == KL_NODE_HOST) {
        if (from.kind != KL_NODE_HOST) {
            const Sip &sip = sips_[from.sip];
            hop(sip.management[1]);
            hop(sip.io_cpu[1]);
            hop(sip.pcie[1]);
        }
        return;
    }
    if (from.kind != KL_NODE_HOST && from.sip != to.sip) {
        hop(sips_[from.sip].out);
        hop(sips_[to.sip].in);
    }
    if (to.kind == KL_NODE_PE) {
        hop(cubes_[pes_[pe_number(to)]->cube].noc_in);
    }
}

uint32_t Simulator::message_name(const Message &message) {
    return trace_->name(node_text(message.from) + " to " + node_text(message.to));
}

void Simulator::send(kl_node from, kl_node to, const void *data, size_t bytes, uint64_t bulk) {
    if (!known(from) || !known(to)) {
        return;
    }
    if (from.kind == KL_NODE_PE && pes_[pe_number(from)]->dead) {
        return;
    }
    const uint32_t index = messages_.acquire();
    Message &message = messages_[index];
    message.from = from;
    message.to = to;
    message.bulk = bulk;
    message.number = ++sent_;
    message.at = 0;
    const auto *begin = static_cast<const unsigned char *>(data);
    message.data.assign(begin, begin + bytes);
    message.name = traces(MESSAGES) ? message_name(message) : 0;
    route(message);
    message.pe = NONE;
    if (from.kind != KL_NODE_HOST && to.kind != KL_NODE_HOST) {
        if (to.kind == KL_NODE_PE) {
            message.pe = pe_number(to);
        } else if (from.kind == KL_NODE_PE) {
            message.pe = pe_number(from);
        }
    }
    if (message.pe != NONE) {
        pes_[message.pe]->control++;
        refresh(*pes_[message.pe]);
    }
    if (message.count == 0) {
        queue_.push(now_, DELIVER, index, NOW_LANE);
    } else {
        begin_hop(index);
    }
}

// A CPU handles one message after the other; on other links latencies overlap.
void Simulator::begin_hop(uint32_t index) {
    Message &message = messages_[index];
    const Link &link = links_[message.hops[message.at]];
    message.hop_begin = now_;
    uint64_t begin = now_;
    if (link.kind == LinkKind::PCIE) {
        accounts_.change_pcie(1, now_);
    }
    if (link.server != NONE) {
        uint64_t &free = servers_[link.server];
        begin = free > now_ ? free : now_;
        free = begin + link.latency_ps;
    }
    const uint32_t lane = link.kind == LinkKind::NOC ? HOP_LANE : EventQueue::NO_LANE;
    queue_.push(later(begin - now_ + link.latency_ps), HOP, index, lane);
}

void Simulator::continue_hop(uint32_t index) {
    const Message &message = messages_[index];
    const Link &link = links_[message.hops[message.at]];
    const uint64_t bytes = message.data.size() + message.bulk;
    if (bytes == 0) {
        end_hop(index);
        return;
    }
    const FlowNetwork::Share share = {link.resource, 1};
    network_.start(now_, bytes, settings_.links[static_cast<uint32_t>(link.kind)].bandwidth,
                   Cause::SCHEDULER, &share, 1, index | MESSAGE_CLIENT);
}

void Simulator::end_hop(uint32_t index) {
    Message &message = messages_[index];
    Link &link = links_[message.hops[message.at]];
    const uint64_t bytes = message.data.size() + message.bulk;
    link.bytes += bytes;
    if (link.kind == LinkKind::NOC) {
        if (message.to.kind != KL_NODE_PE) {
            sips_[message.from.sip].noc_received += bytes;
        } else if (message.from.kind != KL_NODE_PE) {
            sips_[message.to.sip].noc_sent += bytes;
        }
    } else if (link.kind == LinkKind::PCIE) {
        accounts_.change_pcie(-1, now_);
    }
    const bool host = message.from.kind == KL_NODE_HOST || message.to.kind == KL_NODE_HOST;
    if (host && message.from.kind != KL_NODE_PE && message.to.kind != KL_NODE_PE) {
        path_.add_hop(message.hop_begin, now_,
                      link.kind == LinkKind::PCIE ? Cause::PCIE : Cause::SCHEDULER,
                      LINK_NAMES[static_cast<uint32_t>(link.kind)]);
    }
    if (traces(MESSAGES)) {
        trace_->add(link.track, message.name, message.hop_begin, now_, bytes);
    }
    if (++message.at < message.count) {
        begin_hop(index);
        return;
    }
    const Faults &faults = settings_.faults;
    if (faults.late > 0 && message.number % faults.late == 0) {
        queue_.push(later(faults.late_ps), DELIVER, index);
    } else {
        deliver(index);
    }
}

void Simulator::deliver(uint32_t index) {
    Message &message = messages_[index];
    const Faults &faults = settings_.faults;
    const kl_program *program = program_of(message.to);
    const bool lost = faults.lose > 0 && message.number % faults.lose == 0;
    const bool dead = message.to.kind == KL_NODE_PE && pes_[pe_number(message.to)]->dead;
    if (message.pe != NONE) {
        pes_[message.pe]->control--;
        refresh(*pes_[message.pe]);
    }
    if (lost || dead || program == nullptr || program->receive == nullptr) {
        messages_.release(index);
        return;
    }
    messages_run_++;
    kl_delivery delivery = {};
    delivery.from = message.from;
    delivery.to = message.to;
    delivery.bulk = message.bulk;
    if (faults.corrupt > 0 && message.number % faults.corrupt == 0) {
        delivery.damaged = 1;
        if (!message.data.empty()) {
            message.data[message.number % message.data.size()] ^= 0x20;
        }
    }
    delivery.message = message.data.data();
    delivery.bytes = message.data.size();
    program->receive(states_[number(message.to)], &delivery);
    messages_.release(index);
}

} // namespace kernloom
