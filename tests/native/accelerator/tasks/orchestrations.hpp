// Runs functions as orchestrations, and knows the bytes of regions one by one.
#pragma once

#include <bitset>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "graph.hpp"
#include "kernloom/orchestration.hpp"
#include "orchestrator.hpp"
#include "region.hpp"

namespace kernloom::testing {

// A launch on 36 cubes of one matrix and two vector PEs.
struct Launch {
    std::vector<std::uint64_t> tensor_bytes = {4096, 4096, 4096, 4096};
    std::vector<std::uint64_t> values = {7, 8};
    std::vector<tasks::KernelView> kernels = {{"any", KL_CORE_TYPES, 0},
                                              {"matrix", KL_CORE_MATRIX, 1},
                                              {"vector", KL_CORE_VECTOR, 1},
                                              {"two", KL_CORE_TYPES, 2}};
    kl_arch arch{};
    tasks::Limits limits = {1 << 20, "runtime.graph.tasks", 64 << 20, "runtime.graph.heap",
                            1 << 28, "runtime.graph.edges"};
    tasks::Transcript transcript;

    Launch() {
        arch.sips = 1;
        arch.cubes = 36;
        arch.pes = 3;
        arch.core_types[1] = arch.core_types[2] = KL_CORE_VECTOR;
    }

    Outcome record(const std::function<void(const Orchestration &)> &orchestrate) {
        running() = &orchestrate;
        const tasks::LaunchView view{&arch, tensor_bytes, values, kernels};
        return tasks::record([](kl_orchestrator *self) { (*running())(Orchestration(self)); }, view,
                             limits, transcript);
    }

    // The message of a launch that fails.
    std::string problem(const std::function<void(const Orchestration &)> &orchestrate) {
        return record(orchestrate).detail;
    }

  private:
    static const std::function<void(const Orchestration &)> *&running() {
        static thread_local const std::function<void(const Orchestration &)> *function = nullptr;
        return function;
    }
};

constexpr std::size_t MOST_BYTES = 4096;
using Bytes = std::bitset<MOST_BYTES>;

// Marks the bytes of a region as an orchestration states it.
inline Bytes bytes_of(const kl_region &region) {
    Bytes bytes;
    const std::uint64_t item = tasks::bytes_of_dtype(region.dtype);
    const std::function<void(std::uint32_t, std::uint64_t)> go = [&](std::uint32_t dimension,
                                                                     std::uint64_t element) {
        if (dimension == region.dimensions) {
            for (std::uint64_t i = 0; i < item; i++)
                bytes.set(element * item + i);
            return;
        }
        for (std::uint64_t i = 0; i < region.shape[dimension]; i++)
            go(dimension + 1, element + i * region.strides[dimension]);
    };
    go(0, region.offset);
    return bytes;
}

// Marks the bytes of a normalised region.
inline Bytes bytes_of(const tasks::RegionView &region) {
    Bytes bytes;
    const std::function<void(std::uint32_t, std::uint64_t)> go = [&](std::uint32_t dimension,
                                                                     std::uint64_t at) {
        if (dimension == region.dimensions) {
            for (std::uint64_t i = 0; i < region.run; i++)
                bytes.set(at + i);
            return;
        }
        for (std::uint64_t i = 0; i < region.dimension[dimension].extent; i++)
            go(dimension + 1, at + i * region.dimension[dimension].stride);
    };
    go(0, region.begin);
    return bytes;
}

// Random regions inside of a tensor: any strides at all, or boxes of a tensor of some shape.
class RandomRegions {
  public:
    RandomRegions(std::mt19937_64 &random, std::uint64_t bytes) : random_(random), bytes_(bytes) {
    }

    kl_region next() {
        for (;;) {
            kl_region region = below(3) ? box() : any();
            tasks::NewLayout layout;
            if (!tasks::normalise(region, layout))
                continue;
            const std::uint64_t item = tasks::bytes_of_dtype(region.dtype);
            if (region.offset * item + layout.span <= bytes_)
                return region;
        }
    }

    std::uint64_t below(std::uint64_t bound) {
        return random_() % bound;
    }

  private:
    kl_region any() {
        kl_region region{};
        region.dtype = static_cast<std::uint32_t>(below(KL_DTYPES));
        region.dimensions = static_cast<std::uint32_t>(below(KL_MAX_DIMENSIONS + 1));
        region.offset = below(bytes_ / 2);
        for (std::uint32_t i = 0; i < region.dimensions; i++) {
            region.shape[i] = below(20) ? 1 + below(6) : 0;
            region.strides[i] = below(i % 2 ? 12 : 40);
        }
        return region;
    }

    // A part of a dense tensor, with or without steps.
    kl_region box() {
        kl_region region{};
        region.dtype = static_cast<std::uint32_t>(below(KL_DTYPES));
        region.dimensions = 1 + static_cast<std::uint32_t>(below(3));
        static constexpr std::uint64_t shapes[] = {4, 8, 10, 16};
        std::uint64_t stride = 1;
        for (std::uint32_t i = region.dimensions; i-- > 0;) {
            const std::uint64_t whole = shapes[below(4)], step = 1 + below(5) / 4;
            const std::uint64_t extent = 1 + below(whole / step);
            region.offset += stride * below(whole - (extent - 1) * step);
            region.shape[i] = extent;
            region.strides[i] = stride * step;
            stride *= whole;
        }
        return region;
    }

    std::mt19937_64 &random_;
    std::uint64_t bytes_;
};

// Which tasks come before which, directly or not.
class Order {
  public:
    static constexpr std::size_t MOST = 512;

    explicit Order(std::size_t tasks) : before_(tasks) {
    }
    // Edges to `to` are added after all edges to earlier tasks.
    void add(std::uint32_t from, std::uint32_t to) {
        before_[to] |= before_[from];
        before_[to].set(from);
    }
    const std::bitset<MOST> &before(std::uint32_t task) const {
        return before_[task];
    }
    bool operator==(const Order &other) const = default;

  private:
    std::vector<std::bitset<MOST>> before_;
};

} // namespace kernloom::testing
