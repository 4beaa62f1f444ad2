// Settings of a device: lines `key=value`.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernloom/trace_level.hpp"

namespace kernloom {

class Settings {
  public:
    // The text must outlive this.
    explicit Settings(const char *text) : text_(text ? text : "") {
    }

    // Empty if the key is missing.
    std::string_view text(std::string_view key) const {
        for (std::size_t at = 0; at < text_.size();) {
            std::size_t end = text_.find('\n', at);
            if (end == std::string_view::npos)
                end = text_.size();
            const std::string_view line = text_.substr(at, end - at);
            if (line.size() > key.size() && line[key.size()] == '=' && line.starts_with(key))
                return line.substr(key.size() + 1);
            at = end + 1;
        }
        return {};
    }

    // `otherwise` if the key is missing or its value is no number.
    std::uint64_t number(std::string_view key, std::uint64_t otherwise) const {
        const std::string_view digits = text(key);
        std::uint64_t value = 0;
        for (const char digit : digits) {
            if (digit < '0' || digit > '9' || value > (~0ull - 9) / 10)
                return otherwise;
            value = value * 10 + static_cast<std::uint64_t>(digit - '0');
        }
        return digits.empty() ? otherwise : value;
    }

  private:
    std::string_view text_;
};

// Virtual time after which an answer is no longer waited for: target.options.timeout_ns.
inline std::uint64_t answer_timeout_ps(const Settings &settings) {
    constexpr std::uint64_t most = 1'000'000'000'000; // 1,000 s
    const std::uint64_t ns = settings.number("timeout_ns", most);
    return (ns < most ? ns : most) * 1000;
}

inline std::uint32_t trace_level(const Settings &settings) {
    return trace_level(settings.text("trace"), settings.text("trace.level"));
}

// Whether the edges among tasks are kept, with their reasons: for a document, or for the trace.
inline bool wants_edges(const Settings &settings) {
    return settings.number("deps", 0) == 1 || trace_level(settings) >= 2;
}

// Outputs of tasks begin at multiples of this.
constexpr std::uint64_t HEAP_ALIGNMENT = 64;

// Sizes of the runtime hostgraph.
inline std::uint64_t graph_tasks(const Settings &settings) {
    return settings.number("graph.tasks", 1 << 20);
}

inline std::uint64_t graph_heap(const Settings &settings) {
    return settings.number("graph.heap", 64 << 20);
}

inline std::uint64_t graph_edges(const Settings &settings) {
    return settings.number("graph.edges", 1 << 22);
}

// Sizes of the runtime ringmap. A heap has whole places only.
inline std::uint64_t ring_submissions(const Settings &settings) {
    return settings.number("ring.submissions", 1 << 20);
}

inline std::uint64_t ring_slots(const Settings &settings) {
    return settings.number("ring.slots", 1024);
}

inline std::uint64_t ring_dependencies(const Settings &settings) {
    return settings.number("ring.dependencies", 4096);
}

inline std::uint64_t ring_heap(const Settings &settings) {
    return settings.number("ring.heap", 64 << 20) / HEAP_ALIGNMENT * HEAP_ALIGNMENT;
}

inline std::uint64_t ring_depths(const Settings &settings) {
    return settings.number("ring.depths", 4);
}

// The heaps of all rings; more than any device has if it is too large to be counted.
inline std::uint64_t ring_heaps(const Settings &settings) {
    constexpr std::uint64_t TOO_MANY = 1ull << 62;
    std::uint64_t bytes;
    const bool overflows =
        __builtin_mul_overflow(ring_heap(settings), ring_depths(settings), &bytes);
    return overflows || bytes > TOO_MANY ? TOO_MANY : bytes;
}

} // namespace kernloom
