// The program on one PE.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "code.hpp"
#include "kernloom/fabric.hpp"
#include "recorder.hpp"
#include "sram.hpp"

namespace kernloom::core {

class Core {
  public:
    Core(const kl_platform &platform, kl_node node);
    ~Core();

    void receive(const kl_delivery &delivery);
    void timer(std::uint64_t token);
    void replayed(std::uint64_t task);

  private:
    enum Token : std::uint64_t { START = 1, COMPLETE = 2 };

    // A task or a DMA probe; one at a time.
    struct Job {
        kl_node from;
        std::uint32_t kind;
        std::uint64_t request;
        TaskRecord task{};
        std::vector<std::uint64_t> arguments;
        std::unique_ptr<Recorder> recorder;
        Outcome outcome;
        std::uint64_t begin_ps = 0;
    };

    Outcome map(Reader &reader);
    Outcome unmap(Reader &reader);
    Outcome write(Reader &reader);
    Outcome read(Reader &reader, std::uint64_t &bulk);
    Outcome fill(Reader &reader);
    Outcome store(std::uint64_t address, const unsigned char *from, std::uint64_t bytes);
    Outcome fault(const kl_fault &fault, const char *what) const;
    Outcome outside(std::uint64_t address, std::uint64_t bytes) const;

    bool read_task(Reader &reader, Job &job) const;
    bool read_probe(Reader &reader, Job &job) const;
    void start();
    void record();
    void settle();
    void replay();
    void complete();

    const kl_platform &platform_;
    kl_node node_;
    Sram sram_;
    Code code_;
    std::deque<Job> jobs_; // the first one is running
    bool recording_ = false;
    std::uint64_t replays_ = 0;
};

} // namespace kernloom::core
