// Slices on tracks, written as JSON that Perfetto reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kernloom {

class Trace {
  public:
    uint32_t add_process(std::string name);
    uint32_t add_track(uint32_t process, std::string name);

    // The number of a name; equal names have one number.
    uint32_t name(std::string_view text);

    // bytes 0: the slice moves none.
    void add(uint32_t track, uint32_t name, uint64_t begin, uint64_t end, uint64_t bytes = 0) {
        slices_.push_back({begin, end, bytes, track, name});
    }

    // A task; `named`: also among its arguments.
    void add_task(uint32_t track, uint32_t name, uint64_t begin, uint64_t end, bool named) {
        add(track, name, begin, end, named ? NAMED_TASK : 0);
    }

    // An arrow from a slice on one track to a slice on another.
    void add_flow(uint32_t from, uint64_t from_time, uint32_t to, uint64_t to_time) {
        flows_.push_back({from_time, to_time, from, to});
    }

    // A value that holds from a time on, of a process.
    void add_counter(uint32_t track, uint32_t name, uint64_t time, uint64_t value) {
        counts_.push_back({time, value, tracks_[track].process, name});
    }

    // Forgets the launch before: a trace has what led to the first launch, and the last one.
    void begin_launch();

    // Valid until the next call.
    const std::string &json();

  private:
    static constexpr uint64_t NAMED_TASK = UINT64_MAX; // Slice::bytes

    struct Track {
        uint32_t process;
        std::string name;
    };

    struct Slice {
        uint64_t begin;
        uint64_t end;
        uint64_t bytes;
        uint32_t track;
        uint32_t name;
    };

    struct Flow {
        uint64_t from_time;
        uint64_t to_time;
        uint32_t from;
        uint32_t to;
    };

    struct Count {
        uint64_t time;
        uint64_t value;
        uint32_t process;
        uint32_t name;
    };

    struct Size {
        size_t slices;
        size_t flows;
        size_t counts;
    };

    void write_slices();
    void write_flows();
    void write_counts();

    std::vector<std::string> processes_;
    std::vector<Track> tracks_;
    std::vector<std::string> names_; // as JSON strings
    std::unordered_map<std::string, uint32_t> numbers_;
    std::vector<Slice> slices_;
    std::vector<Flow> flows_;
    std::vector<Count> counts_;
    std::optional<Size> before_launches_;
    std::vector<uint32_t> threads_; // by track: the first one that shows it; 0: none
    std::string text_;
};

} // namespace kernloom
