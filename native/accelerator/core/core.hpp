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
    // The low bits of a timer's token; above them is the job's serial number.
    enum Token : std::uint64_t { START = 1, COMPLETE = 2, MET = 3 };
    enum { TOKEN_BITS = 2 };

    // A task or a DMA probe; one at a time.
    struct Job {
        kl_node from{};
        std::uint32_t kind = 0;
        std::uint64_t request = 0;
        std::uint64_t serial = 0;
        TaskRecord task{};
        BlockRecord part = {0, 0, 0, 0, 1, 0, 0};
        std::vector<std::uint64_t> arguments;
        std::unique_ptr<Recorder> recorder;
        Outcome outcome;
        std::uint64_t begin_ps = 0;
        bool meeting = false; // waits for the others of its gang
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
    static std::string title_of(const Job &job);
    void add(Job job);
    void forget_before(const Job &job);
    void meet(const Job &job, std::uint32_t members);
    void start();
    void record();
    void settle();
    void replay();
    void hand_over(Job &job) const;
    void complete();

    const kl_platform &platform_;
    kl_node node_;
    Sram sram_;
    Code code_;
    std::deque<Job> jobs_; // the first one is running
    bool recording_ = false;
    std::uint64_t replays_ = 0;
    std::uint64_t serials_ = 0;
};

} // namespace kernloom::core
