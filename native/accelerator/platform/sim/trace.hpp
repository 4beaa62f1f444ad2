// Slices on tracks, written as JSON that Perfetto reads.
#pragma once

#include <cstdint>
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

    // Valid until the next call.
    const std::string &json();

  private:
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

    std::vector<std::string> processes_;
    std::vector<Track> tracks_;
    std::vector<std::string> names_; // as JSON strings
    std::unordered_map<std::string, uint32_t> numbers_;
    std::vector<Slice> slices_;
    std::string text_;
};

} // namespace kernloom
