#include "outside.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace kernloom::tasks {

namespace {

// A region of a launch's tensor, with its layout.
struct Part {
    std::uint32_t tensor;
    std::uint8_t access; // KL_ACCESS_IN, KL_ACCESS_INOUT or KL_ACCESS_NONE
    std::uint8_t dtype;
    std::uint64_t begin;
    NewLayout layout;

    RegionView view() const {
        return {begin, layout.run, layout.span, layout.dimensions, layout.dimension};
    }
};

auto layout_key(const Part &part) {
    const NewLayout &layout = part.layout;
    const Dimension *const d = layout.dimension;
    static_assert(KL_MAX_DIMENSIONS == 4);
    return std::make_tuple(part.tensor, part.access, layout.run, layout.dimensions, d[0].extent,
                           d[0].stride, d[1].extent, d[1].stride, d[2].extent, d[2].stride,
                           d[3].extent, d[3].stride);
}

auto key(const Part &part) {
    return std::make_pair(layout_key(part), part.begin);
}

// Beginnings of regions that differ in nothing else, in the order of tasks: runs of equal
// distances. Tasks mostly go over a tensor step by step, and often over the same part of it, so
// that there are far fewer runs than regions.
class Begins {
  public:
    void add(std::uint64_t begin) {
        if (!runs_.empty()) {
            Run &last = runs_.back();
            if (begin == last.begin + last.step * (last.count - 1))
                return; // once more
            if (last.count == 1 && begin > last.begin)
                last.step = begin - last.begin;
            if (begin == last.begin + last.step * last.count) {
                last.count++;
                return;
            }
        }
        runs_.push_back({begin, 0, 1});
    }

    // All of them, each once, in order.
    std::vector<std::uint64_t> take() {
        std::sort(runs_.begin(), runs_.end());
        runs_.erase(std::unique(runs_.begin(), runs_.end()), runs_.end());
        std::vector<std::uint64_t> begins;
        for (const Run &run : runs_)
            for (std::uint64_t i = 0; i < run.count; i++)
                begins.push_back(run.begin + i * run.step);
        if (!std::is_sorted(begins.begin(), begins.end()))
            std::sort(begins.begin(), begins.end());
        begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
        return begins;
    }

  private:
    struct Run {
        std::uint64_t begin;
        std::uint64_t step;
        std::uint64_t count;
        auto operator<=>(const Run &) const = default;
    };
    std::vector<Run> runs_;
};

// Gives a region one more dimension; false if it has too many then.
bool repeat(const NewLayout &layout, std::uint64_t count, std::uint64_t step, NewLayout &repeated) {
    Dimension dimension[KL_MAX_DIMENSIONS + 1];
    std::copy(layout.dimension, layout.dimension + layout.dimensions, dimension);
    dimension[layout.dimensions] = {count, step};
    return normalise(layout.run, dimension, layout.dimensions + 1, repeated);
}

// How many of the last of `count` regions at equal distances become one: all of them, or as many as
// fill a dimension up to the next one, or 1.
std::uint64_t repeatable(const NewLayout &layout, std::uint64_t count, std::uint64_t step,
                         NewLayout &repeated) {
    if (repeat(layout, count, step, repeated))
        return count;
    repeated = layout;
    std::uint64_t most = 1;
    for (std::uint32_t i = 0; i < layout.dimensions; i++) {
        const std::uint64_t fills = layout.dimension[i].stride / step;
        NewLayout filled;
        if (fills > most && fills < count && repeat(layout, fills, step, filled)) {
            most = fills;
            repeated = filled;
        }
    }
    return most;
}

// Regions that are like `part` but for their beginnings: those that follow each other at equal
// distances become one with one more dimension.
void join_alike(const Part &part, const std::vector<std::uint64_t> &begins,
                std::vector<Part> &joined) {
    for (std::size_t i = 0; i < begins.size();) {
        std::size_t end = i + 1;
        const std::uint64_t step = end < begins.size() ? begins[end] - begins[i] : 0;
        while (end < begins.size() && begins[end] - begins[end - 1] == step)
            end++;
        Part single = part, several = part;
        const std::size_t count = end - i;
        std::size_t last = 1;
        if (count > 1)
            last = repeatable(part.layout, count, step, several.layout);
        for (; i < end - last; i++) {
            single.begin = begins[i];
            joined.push_back(single);
        }
        // One alone may be the first of those that follow.
        if (last == 1 && count > 1)
            continue;
        several.begin = begins[i];
        joined.push_back(several);
        i = end;
    }
}

// Returns whether there are fewer regions now.
bool join(std::vector<Part> &parts) {
    std::sort(parts.begin(), parts.end(),
              [](const Part &a, const Part &b) { return key(a) < key(b); });
    std::vector<Part> joined;
    std::vector<std::uint64_t> begins;
    for (std::size_t i = 0; i < parts.size();) {
        const Part &first = parts[i];
        begins.clear();
        for (; i < parts.size() && layout_key(parts[i]) == layout_key(first); i++)
            if (begins.empty() || begins.back() != parts[i].begin)
                begins.push_back(parts[i].begin);
        join_alike(first, begins, joined);
    }
    const bool fewer = joined.size() < parts.size();
    parts = std::move(joined);
    return fewer;
}

// One region from the first to the last byte.
Part span_of(const Part *begin, const Part *end) {
    Part whole = *begin;
    std::uint64_t last = whole.begin + whole.layout.span;
    for (const Part *part = begin; part != end; part++) {
        whole.begin = std::min(whole.begin, part->begin);
        last = std::max(last, part->begin + part->layout.span);
    }
    whole.layout = {};
    whole.layout.run = whole.layout.span = last - whole.begin;
    return whole;
}

// The access of a recorded graph, if a task of it has a region.
std::uint8_t access_of(const Transcript &body, const Region &region) {
    // Nothing is derived from tasks in manual scopes, but they use the tensor.
    if (body.tasks[region.task].flags & TASK_MANUAL)
        return KL_ACCESS_NONE;
    return region.access == KL_ACCESS_WRITE ? std::uint8_t{KL_ACCESS_INOUT} : region.access;
}

// The regions of all tasks, already joined where they are alike.
std::vector<Part> parts_of(const Transcript &body) {
    struct Alike {
        Part part;
        Begins begins;
    };
    constexpr std::uint64_t UNKNOWN = UINT64_MAX;
    constexpr std::uint32_t RECENT = 16;
    std::vector<Alike> found;
    std::unordered_map<std::uint64_t, std::size_t> places;
    // What the same argument of the task before was.
    struct {
        std::uint64_t kind = UNKNOWN;
        std::size_t place = 0;
    } recent[RECENT];
    for (const Region &region : body.regions) {
        if (region.tensor >= body.launch_tensors)
            continue;
        const std::uint8_t access = access_of(body, region);
        static_assert(KL_ACCESSES <= 8);
        const std::uint64_t kind =
            std::uint64_t{region.tensor} << 35 | std::uint64_t{access} << 32 | region.layout;
        auto &last = recent[region.argument % RECENT];
        if (last.kind != kind) {
            const auto [place, added] = places.emplace(kind, found.size());
            if (added) {
                const RegionView view = view_of(body, region);
                Part part{region.tensor, access, region.dtype, 0, {}};
                part.layout.run = view.run;
                part.layout.span = view.span;
                part.layout.dimensions = view.dimensions;
                std::copy(view.dimension, view.dimension + view.dimensions, part.layout.dimension);
                found.push_back({part, {}});
            }
            last = {kind, place->second};
        }
        found[last.place].begins.add(region.begin);
    }
    std::vector<Part> parts;
    for (Alike &alike : found)
        if (alike.part.layout.span)
            join_alike(alike.part, alike.begins.take(), parts);
    return parts;
}

} // namespace

Array<Region> outside_of(const Transcript &body, Layouts &layouts) {
    std::vector<Part> parts = parts_of(body);
    while (join(parts)) {
    }
    const auto same = [](const Part &a, const Part &b) {
        return a.tensor == b.tensor && a.access == b.access;
    };
    std::vector<Part> kept;
    for (std::size_t i = 0; i < parts.size();) {
        std::size_t end = i;
        while (end < parts.size() && same(parts[end], parts[i]))
            end++;
        if (end - i > MOST_OUTSIDE || parts[i].access == KL_ACCESS_NONE)
            kept.push_back(span_of(&parts[i], parts.data() + end));
        else
            kept.insert(kept.end(), parts.begin() + i, parts.begin() + end);
        i = end;
    }
    Array<Region> outside;
    for (const Part &part : kept) {
        // A read of what the graph writes adds nothing.
        const bool covered = part.access == KL_ACCESS_IN &&
                             std::any_of(kept.begin(), kept.end(), [&](const Part &other) {
                                 return other.tensor == part.tensor &&
                                        other.access == KL_ACCESS_INOUT &&
                                        covers(other.view(), part.view());
                             });
        if (!covered)
            outside.push_back({part.tensor, 0, part.begin, layouts.intern(part.layout), part.access,
                               part.dtype, NO_ARGUMENT});
    }
    return outside;
}

} // namespace kernloom::tasks
