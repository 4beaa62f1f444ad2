#include "hazards.hpp"

#include <algorithm>

#include "graph.hpp"
#include "region_bytes.hpp"

namespace kernloom::tasks {

// A region of a task, in the device's addresses.
struct Hazards::Declared {
    RegionView view;
    std::uint32_t tensor; // of the transcript
    std::uint8_t access;
};

namespace {

// A transfer has rows at one distance.
RegionView view_of(const kl_action &action, NewLayout &layout) {
    const kl_rows &rows = action.rows;
    if (!rows.rows || !rows.bytes) {
        layout = {};
    } else if (rows.rows == 1 || rows.device_stride == rows.bytes) {
        layout.run = layout.span = rows.rows * rows.bytes;
        layout.dimensions = 0;
    } else {
        const Dimension dimension = {rows.rows, rows.device_stride};
        normalise(rows.bytes, &dimension, 1, layout);
    }
    return {action.address, layout.run, layout.span, layout.dimensions, layout.dimension};
}

} // namespace

Hazards::Hazards() = default;
Hazards::~Hazards() = default;

void Hazards::begin(const Transcript &transcript, std::span<const TensorRecord> tensors,
                    HazardNames names) {
    transcript_ = &transcript;
    names_ = std::move(names);
    races_.begin(transcript, tensors, names_);
}

void Hazards::declare(TaskPlace place) {
    const Task &submitted = transcript_->tasks[place.task];
    const bool graph = place.node != NONE;
    const Transcript &body = graph ? transcript_->graphs[submitted.kernel].body : *transcript_;
    const Task &task = graph ? body.tasks[place.node] : submitted;
    declared_.clear();
    for (std::uint32_t i = 0; i < task.regions; i++) {
        const Region &region = body.regions[task.first_region + i];
        Declared one{tasks::view_of(body, region), region.tensor, region.access};
        if (!one.view.span)
            continue;
        std::uint64_t offset = region.begin;
        if (graph) {
            const Argument bound = bind(*transcript_, submitted, {region.begin, region.tensor, 0});
            one.tensor = bound.tensor;
            offset = bound.bits;
        }
        one.view.begin = names_.address(one.tensor) + offset;
        declared_.push_back(one);
    }
}

// A region that covers a transfer, and allows for it.
const Hazards::Declared *Hazards::find(const RegionView &view, bool store) const {
    for (const Declared &one : declared_)
        if ((!store || one.access != KL_ACCESS_IN) && covers(one.view, view))
            return &one;
    return nullptr;
}

// The same where several regions may cover a transfer together; the first of them. `first` is the
// first byte that is not covered if there is none.
const Hazards::Declared *Hazards::find_parts(const RegionView &view, bool store,
                                             std::uint64_t &first) const {
    const Declared *found = nullptr;
    auto visit = [&](std::uint64_t at, std::uint64_t end) {
        while (at < end) {
            std::uint64_t next = 0;
            for (const Declared &one : declared_) {
                if (store && one.access == KL_ACCESS_IN)
                    continue;
                const ByteRange range = range_at(one.view, at);
                if (!range.empty() && !found)
                    found = &one;
                next = std::max(next, range.end);
            }
            if (!next) {
                first = at;
                return false;
            }
            at = next;
        }
        return true;
    };
    return each_row(view, 0, view.begin, visit) ? found : nullptr;
}

Outcome Hazards::add(TaskPlace place, std::span<const kl_action> actions) {
    bool declared = false;
    races_.begin_task(place);
    for (const kl_action &action : actions) {
        if (action.kind != KL_ACTION_LOAD && action.kind != KL_ACTION_STORE)
            continue;
        if (!declared)
            declare(place);
        declared = true;
        NewLayout layout;
        const RegionView view = view_of(action, layout);
        const bool store = action.kind == KL_ACTION_STORE;
        if (!view.span)
            continue;
        std::uint64_t first = 0;
        const Declared *region = find(view, store);
        if (!region)
            region = find_parts(view, store, first);
        if (!region)
            return undeclared(place, view, store, first);
        races_.touch(region->tensor, view, store);
    }
    races_.keep(place);
    return {};
}

// Another task that uses bytes, if the use conflicts.
std::string Hazards::other_user(TaskPlace place, std::uint32_t tensor, std::uint64_t begin,
                                std::uint64_t end, bool store) const {
    const Dimension *const none = nullptr;
    const RegionView bytes = {begin, end - begin, end - begin, 0, none};
    for (const bool wanted : {true, false})
        for (const Region &region : transcript_->regions) {
            const bool writes = region.access != KL_ACCESS_IN && region.access != KL_ACCESS_NONE;
            if (region.tensor != tensor || region.task == place.task || writes != wanted ||
                !(writes || store) ||
                first_common(tasks::view_of(*transcript_, region), bytes).empty())
                continue;
            return text_of("; %s %s it", names_.task({region.task, NONE}).c_str(),
                           writes ? "writes" : "uses");
        }
    return "";
}

Outcome Hazards::undeclared(TaskPlace place, const RegionView &view, bool store,
                            std::uint64_t first) const {
    // The rest of the row, up to the next byte that is declared.
    std::uint64_t end = first;
    auto visit = [&](std::uint64_t from, std::uint64_t to) {
        if (first < from || first >= to)
            return true;
        end = to;
        return false;
    };
    each_row(view, 0, view.begin, visit);
    const char *const verb = store ? "writes" : "reads";
    std::uint32_t tensor = NONE;
    bool only_in = false;
    for (const Declared &one : declared_) {
        const std::uint64_t base = names_.address(one.tensor);
        if (first >= base && first - base < transcript_->tensors[one.tensor].bytes)
            tensor = one.tensor;
        only_in = only_in || !range_at(one.view, first).empty();
    }
    for (std::uint32_t i = 0; i < transcript_->launch_tensors && tensor == NONE; i++)
        if (first >= names_.address(i) && first - names_.address(i) < transcript_->tensors[i].bytes)
            tensor = i;
    const std::string who = names_.task(place);
    const char *const why =
        only_in ? "which it declares as input only" : "which no region that it declares covers";
    if (tensor == NONE)
        return Outcome::failure(KL_STATUS_HAZARD,
                                text_of("hazard: %s %s %llu bytes at address 0x%llx, %s",
                                        who.c_str(), verb, (unsigned long long)(end - first),
                                        (unsigned long long)first, why),
                                first);
    const std::uint64_t base = names_.address(tensor);
    return Outcome::failure(
        KL_STATUS_HAZARD,
        text_of("hazard: %s %s bytes %llu to %llu of %s, %s%s", who.c_str(), verb,
                (unsigned long long)(first - base), (unsigned long long)(end - base - 1),
                names_.tensor(*transcript_, tensor).c_str(), why,
                other_user(place, tensor, first - base, end - base, store).c_str()),
        tensor < transcript_->launch_tensors ? first : 0);
}

} // namespace kernloom::tasks
