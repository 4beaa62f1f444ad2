// Derives which tasks must wait for which.
//
// A task depends on earlier ones that wrote what it reads (RAW) or writes (WAW), and on those that
// read what it writes (WAR), where their regions overlap; on the tasks that it names; on the last
// barrier. A barrier depends on all tasks since the one before. A task of a manual scope depends on
// the tasks that it names and on the last barrier only, and no other task depends on it but by name
// or as a barrier: its accesses are neither compared nor remembered, also after the scope's end.
//
// A dependency that follows from others may be left out: a write that covers earlier accesses
// replaces them, also several writes together.
#pragma once

#include <memory>

#include "region.hpp"
#include "transcript.hpp"

namespace kernloom::tasks {

enum EdgeKind : std::uint32_t {
    EDGE_RAW = 0,
    EDGE_WAW = 1,
    EDGE_WAR = 2,
    EDGE_EXPLICIT = 3,
    EDGE_BARRIER = 4,
    EDGE_HEAP = 5, // an output takes the place of one that is no longer needed
    EDGE_KINDS = 6,
};

const char *name_of_edge(std::uint32_t kind);

// Why one task waits for another. Two tasks may have several.
struct Edge {
    std::uint32_t from;
    std::uint32_t to; // waits for `from`
    std::uint32_t kind;
    std::uint32_t tensor; // or NONE
    std::uint64_t begin;  // the bytes of the tensor that both regions span
    std::uint64_t end;
};

// Sorts the edges to one task that begin at a place, and drops those that are there twice.
void make_unique(Array<Edge> &edges, std::size_t first);

class Dependencies {
  public:
    // The transcript must outlive this, and must not change but by growing.
    explicit Dependencies(const Transcript &transcript);
    ~Dependencies();
    Dependencies(const Dependencies &) = delete;
    Dependencies &operator=(const Dependencies &) = delete;

    // Appends the tasks that the next task (0, 1, ...) depends on, each once, and not those that
    // are retired. `edges` gets the reasons.
    void add(std::uint32_t task, Array<std::uint32_t> &found, Array<Edge> *edges = nullptr);
    // Nothing will depend on the task any more.
    void retire(std::uint32_t task);

    // Memory in use.
    std::uint64_t bytes() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace kernloom::tasks
