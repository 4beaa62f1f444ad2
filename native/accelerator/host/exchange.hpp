// Requests of the host through the fabric, and their answers. Waiting for them is what makes
// virtual time go on.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "kernloom/fabric.hpp"

namespace kernloom::host {

struct Answer {
    kl_node from{};
    std::uint32_t kind = 0;
    std::uint64_t request = 0;
    bool arrived = false;
    std::uint64_t at_ps = 0;
    Outcome outcome;
};

class Exchange {
  public:
    Exchange(const kl_platform &platform, kl_node node, std::uint64_t timeout_ps);

    // Starts a round of requests.
    void begin();
    // The number of a new request, for its Packet.
    std::uint64_t next_request() {
        return ++requests_;
    }
    void send(kl_node to, std::uint64_t request, std::uint32_t kind, Packet &packet,
              std::uint64_t bulk = 0);
    // Sends a MemoryWrite or MemoryRead of host memory; a write takes as long as `bulk` bytes do.
    void send_transfer(kl_node to, std::uint16_t kind, std::uint64_t address, unsigned char *data,
                       std::uint64_t bytes, std::uint64_t bulk);
    // Waits for the answers of all requests since `begin`; what does not come, within `timeouts`
    // times the usual time, is a failure.
    const std::vector<Answer> &wait(std::uint64_t timeouts = 1);
    // The host builds and submits tasks for a while.
    void submit(std::uint64_t delay_ps);

    std::uint64_t now() const {
        return platform_.now(platform_.self);
    }

    void receive(const kl_delivery &delivery);
    void timer(std::uint64_t token);

  private:
    enum Token : std::uint64_t { WATCHDOG = 1, SPENT = 2 };

    void tell_idle(std::uint32_t why);
    Answer *expected(const kl_delivery &delivery, std::uint64_t request);
    void give_up(std::uint64_t timeouts, std::uint64_t delay_ps);

    const kl_platform &platform_;
    kl_node node_;
    std::uint64_t timeout_ps_;
    Watchdog watchdog_;
    std::uint64_t requests_ = 0;
    std::uint64_t first_request_ = 0;
    std::vector<Answer> answers_;
    std::size_t missing_ = 0;
    bool over_ = false;
    bool spending_ = false;
    std::deque<HostTransfer> transfers_;
    // Of requests that were never answered: a PE may still look at them.
    std::deque<std::deque<HostTransfer>> given_up_;
};

} // namespace kernloom::host
