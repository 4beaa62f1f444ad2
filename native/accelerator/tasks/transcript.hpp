// What an orchestration asked for, in order: tasks with their arguments and regions, scopes,
// barriers, submissions of recorded graphs. Flat and compact; nothing in it refers to memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "array.hpp"
#include "kernloom/orchestration.h"
#include "limits.hpp"

namespace kernloom::tasks {

constexpr std::uint32_t NONE = UINT32_MAX;

struct Dimension {
    std::uint64_t extent; // more than 1
    std::uint64_t stride; // in bytes, larger than that of the next dimension
};

// Shape of a region, normalised: rows of `run` contiguous bytes, repeated along dimensions. Regions
// of one shape share it.
struct Layout {
    std::uint64_t run;             // 0: nothing at all
    std::uint64_t span;            // from the first byte to the end of the last row
    std::uint32_t first_dimension; // in Transcript::dimensions; outermost first
    std::uint32_t dimensions;      // beside the contiguous run; 0: one run
};

// A part of a tensor that a task uses.
struct Region {
    std::uint32_t tensor;
    std::uint32_t task;
    std::uint64_t begin;  // first byte, in the tensor
    std::uint32_t layout; // in Transcript::layouts
    std::uint8_t access;  // enum kl_access
    std::uint8_t dtype;
    std::uint16_t argument; // of the task; NO_ARGUMENT: the element of its predicate
};

constexpr std::uint16_t NO_ARGUMENT = UINT16_MAX;

// Argument::tensor of a value.
constexpr std::uint32_t VALUE = NONE;
// In a recorded graph: `bits` is the place of the launch's value.
constexpr std::uint32_t LAUNCH_VALUE = NONE - 1;

struct Argument {
    std::uint64_t bits;   // a value, or the byte offset in a tensor
    std::uint32_t tensor; // or VALUE, LAUNCH_VALUE
    std::uint32_t reserved;
};

enum TaskFlags : std::uint8_t {
    TASK_SYNC_START = 1,
    TASK_MANUAL = 2,  // submitted in a manual scope: nothing is derived
    TASK_BARRIER = 4, // waits for all before it, and all after it wait for it
    TASK_GRAPH = 8,   // a recorded graph; `kernel` is its number
};

// Arguments of a TASK_GRAPH: what the launch's tensors stand for, what its values stand for, and
// last the tensor that holds the graph's own ones, if it has any.
struct Task {
    std::uint32_t kernel; // KL_NO_KERNEL: a dummy
    std::uint32_t vector_kernel;
    std::uint32_t first_argument;
    std::uint32_t first_region;
    std::uint32_t first_after; // in Transcript::after: places of tasks
    std::uint16_t arguments;
    std::uint16_t regions; // those of the arguments in order, then the predicate's element
    std::uint16_t after;
    std::uint8_t vectors;
    std::uint8_t flags;
    std::uint32_t blocks; // at least 1
    std::uint32_t block;
    std::uint32_t of_blocks; // at least 1
    std::uint32_t predicate; // in Transcript::predicates, or NONE
    std::uint32_t scope;     // in Transcript::scopes
    std::uint32_t name;      // in Transcript::names, or NONE: the kernel's
};

// A scope; the whole orchestration is scope 0.
struct Scope {
    std::uint32_t parent;
    std::uint32_t depth; // of scope 0: 0
    std::uint32_t begin; // tasks submitted before it began,
    std::uint32_t end;   // and before it ended
};

// A tensor: of the launch (its place is its number), or an output.
struct TensorInfo {
    std::uint64_t bytes;
    std::uint32_t producer; // the task that it is an output of, or NONE
    std::uint32_t scope;    // with which it dies
};

// Which tasks wait for which. Tasks that `task` frees: successors[first[task]] to
// successors[first[task + 1] - 1], in order of submission.
struct Edges {
    Array<std::uint32_t> first;
    Array<std::uint32_t> successors;
    Array<std::uint32_t> predecessors; // how many, of each task

    std::uint64_t bytes() const {
        return first.bytes() + successors.bytes() + predecessors.bytes();
    }
};

// Where outputs are.
struct Heap {
    std::uint64_t bytes = 0;      // needed
    Array<std::uint64_t> offsets; // by output: of tensor launch_tensors + i
};

struct RecordedGraph;

struct Transcript {
    Array<Task> tasks;
    Array<Argument> arguments;
    Array<Region> regions;
    Array<Layout> layouts; // each once
    Array<Dimension> dimensions;
    Array<std::uint32_t> after;
    Array<kl_predicate> predicates; // their tensors are places in `tensors`
    Array<Scope> scopes;            // in the order in which they began
    Array<TensorInfo> tensors;
    std::vector<std::string> names;
    std::vector<RecordedGraph> graphs;
    std::uint32_t launch_tensors = 0;
    std::uint64_t executions = 0; // as they count for Limits::tasks

    std::uint64_t end_of(const Region &region) const {
        return region.begin + layouts[region.layout].span;
    }
    std::uint64_t bytes() const;
};

// Tasks recorded once. Places of tasks are counted from its beginning; its tensors are the launch's
// and then its own ones, which share one tensor of each submission.
struct RecordedGraph {
    std::string name;
    Transcript body;
    Edges edges;
    Heap heap;             // of its own tensors
    Array<Region> outside; // what all its tasks use of the launch's tensors; layouts are the body's
    Array<std::uint64_t> needs; // bytes that it uses of each tensor of the launch

    std::uint64_t bytes() const;
};

} // namespace kernloom::tasks
