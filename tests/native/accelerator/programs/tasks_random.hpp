// Random scripts that use everything tasks can do, and are right in any order that respects their
// dependencies.
#pragma once

#include <algorithm>
#include <random>

#include "script_device.hpp"

namespace script {

constexpr std::uint64_t ROWS = 16, COLUMNS = 16;
// The last one is never written: a task may use it without any dependency.
constexpr std::uint64_t TENSORS = 4, CONSTANT = TENSORS - 1;

struct Width {
    std::uint64_t matrix, vector, cubes, vectors_of_cube;
};

class RandomScript {
  public:
    RandomScript(std::uint64_t seed, const Width &width)
        : numbers_(seed), width_(width), script_(below(1000)) {
        const std::uint64_t tasks = 1 + below(40);
        scopes_.emplace_back();
        while (count_ < tasks)
            step();
        while (scopes_.size() > 1)
            end_scope();
    }

    const Script &script() const {
        return script_;
    }
    // Tasks that it submits, barriers included.
    std::uint64_t submissions() const {
        return handles_.size();
    }
    std::uint64_t graphs() const {
        return graphs_;
    }
    bool has_outputs() const {
        return outputs_ > 0;
    }
    std::vector<Tensor> tensors() {
        std::vector<Tensor> made;
        for (std::uint64_t i = 0; i < TENSORS; i++) {
            made.emplace_back(ROWS * COLUMNS);
            for (std::uint32_t &element : made.back())
                element = static_cast<std::uint32_t>(numbers_());
        }
        return made;
    }

  private:
    struct Output {
        std::uint64_t number, rows, columns;
    };

    std::uint64_t below(std::uint64_t bound) {
        return numbers_() % bound;
    }

    void step() {
        const std::uint64_t kind = below(30);
        if (kind == 0) {
            script_.add({BARRIER});
            handles_.push_back(false);
            count_++;
        } else if (kind <= 2 && scopes_.size() < 6) {
            script_.add({BEGIN_SCOPE, KL_SCOPE_DERIVED});
            scopes_.emplace_back();
        } else if (kind <= 4 && scopes_.size() > 1) {
            end_scope();
        } else if (kind == 5) {
            manual();
        } else if (kind == 6) {
            graph();
        } else {
            submit(task());
        }
    }

    void end_scope() {
        script_.add({END_SCOPE});
        scopes_.pop_back();
    }

    void submit(const Submit &one) {
        script_.submit(one);
        handles_.push_back(true);
        count_++;
        learn(one);
    }

    // Remembers the outputs of a task.
    void learn(const Submit &one) {
        for (const Part &part : one.parts)
            if (part.access == KL_ACCESS_OUT)
                scopes_.back().push_back({outputs_++, part.rows, part.columns});
    }

    // Each task names the one before.
    void manual() {
        script_.add({BARRIER, BEGIN_SCOPE, KL_SCOPE_MANUAL});
        handles_.push_back(false);
        scopes_.emplace_back();
        const std::uint64_t tasks = 1 + below(4);
        for (std::uint64_t i = 0; i < tasks; i++) {
            Submit one = task();
            one.after_count = i ? 1 : 0;
            one.after[0] = handles_.size() - 1;
            submit(one);
        }
        end_scope();
        script_.add({BARRIER});
        handles_.push_back(false);
    }

    void graph() {
        script_.add({BEGIN_GRAPH});
        std::vector<std::vector<Output>> outside;
        std::swap(outside, scopes_);
        std::vector<bool> handles;
        std::swap(handles, handles_);
        scopes_.emplace_back();
        const std::uint64_t tasks = 1 + below(6);
        for (std::uint64_t i = 0; i < tasks; i++) {
            Submit one = task();
            one.launch_salt = below(2);
            submit(one);
        }
        std::swap(outside, scopes_);
        std::swap(handles, handles_);
        script_.add({END_GRAPH});
        const std::uint64_t times = 1 + below(3);
        for (std::uint64_t i = 0; i < times; i++) {
            std::uint64_t map[CONSTANT];
            for (std::uint64_t j = 0; j < CONSTANT; j++)
                map[j] = j;
            std::shuffle(map, map + CONSTANT, numbers_);
            script_.add({SUBMIT_GRAPH, graphs_, below(1000), map[0], map[1], map[2], CONSTANT});
            handles_.push_back(true);
        }
        graphs_++;
    }

    Part part(std::uint64_t access, std::uint64_t tensor) {
        const std::uint64_t rows = 1 + below(6), columns = 1 + below(8);
        const std::uint64_t row = below(ROWS - rows * 2), column = below(COLUMNS - columns);
        return {access, tensor, row * COLUMNS + column, rows, columns, COLUMNS * (1 + below(2))};
    }

    Submit task() {
        Submit one;
        std::uint64_t tensors[CONSTANT] = {0, 1, 2};
        std::shuffle(tensors, tensors + CONSTANT, numbers_);
        one.kernel = below(2) ? MATRIX_KERNEL : VECTOR_KERNEL;
        one.salt = below(1 << 20);
        one.cycles = below(3) ? below(5000) : 0;
        // What it reads: a tensor, the constant one without a dependency, an output, nothing.
        std::vector<Output> known;
        for (const std::vector<Output> &scope : scopes_)
            known.insert(known.end(), scope.begin(), scope.end());
        const std::uint64_t read = below(8);
        if (read < 4)
            one.parts[0] = part(KL_ACCESS_IN, tensors[0]);
        else if (read == 4)
            one.parts[0] = part(KL_ACCESS_NONE, CONSTANT);
        else if (read < 7 && !known.empty()) {
            const Output from = known[below(known.size())];
            one.parts[0] = {KL_ACCESS_IN, OUTPUT + from.number, 0,
                            from.rows,    from.columns,         from.columns};
        }
        one.parts[2] = {KL_ACCESS_IN, tensors[2], 0, 0, 0, 0};
        const std::uint64_t write = below(6);
        if (write == 0)
            one.parts[1] = {KL_ACCESS_OUT, 0, 0, 1 + below(5), 1 + below(9), 0};
        else
            one.parts[1] = part(write < 4 ? KL_ACCESS_INOUT : KL_ACCESS_WRITE, tensors[1]);
        if (one.parts[1].access == KL_ACCESS_OUT)
            one.parts[1].stride = one.parts[1].columns;
        const std::uint64_t shape = below(10);
        if (shape == 0) {
            one.kernel = NO_KERNEL;
            one.parts[1] = part(KL_ACCESS_INOUT, tensors[1]);
        } else if (shape <= 2) {
            one.blocks = 2 + below(8);
            const std::uint64_t most = one.kernel == MATRIX_KERNEL ? width_.matrix : width_.vector;
            if (below(2) && one.blocks <= most)
                one.sync_start = 1;
        } else if (shape <= 4) {
            one.kernel = MATRIX_KERNEL;
            one.vector_kernel = LANE_KERNEL;
            one.vectors = 1 + below(2);
            one.blocks = below(4);
            one.parts[2] = part(below(2) ? KL_ACCESS_INOUT : KL_ACCESS_WRITE, tensors[2]);
            if (below(2) && one.blocks <= width_.cubes)
                one.sync_start = 1;
        }
        if (below(5) == 0 && one.parts[1].access != KL_ACCESS_OUT) {
            one.predicated = 1;
            one.predicate_tensor = below(TENSORS);
            one.predicate_element = below(ROWS * COLUMNS);
            one.comparison = below(KL_COMPARISONS);
            one.compared = static_cast<std::uint64_t>(
                static_cast<std::int64_t>(static_cast<std::int32_t>(numbers_())));
        }
        for (std::uint64_t i = 0; i < 3 && !handles_.empty() && below(4) == 0; i++) {
            const std::uint64_t place = below(handles_.size());
            if (handles_[place])
                one.after[one.after_count++] = place;
        }
        return one;
    }

    std::mt19937_64 numbers_;
    Width width_;
    Script script_;
    std::vector<bool> handles_; // of the script: whether it is one
    std::vector<std::vector<Output>> scopes_;
    std::uint64_t outputs_ = 0;
    std::uint64_t graphs_ = 0;
    std::uint64_t count_ = 0;
};

} // namespace script
