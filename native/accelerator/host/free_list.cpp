#include "free_list.hpp"

#include <algorithm>
#include <iterator>

namespace kernloom::host {

FreeList::FreeList(std::uint64_t base, std::uint64_t bytes)
    : base_(base), end_(base + bytes), next_(base), free_bytes_(bytes) {
    if (bytes)
        free_.emplace(base, end_);
}

// Takes bytes of a free range, at `from` or above; nothing if they do not fit.
std::optional<std::uint64_t> FreeList::take(Ranges::iterator range, std::uint64_t from,
                                            std::uint64_t bytes, std::uint64_t alignment) {
    const auto [start, end] = *range;
    const std::uint64_t least = std::max(start, from);
    if (least > ~0ull - (alignment - 1))
        return {};
    const std::uint64_t at = (least + alignment - 1) / alignment * alignment;
    if (at > end || bytes > end - at)
        return {};
    free_.erase(range);
    if (at > start)
        free_.emplace(start, at);
    if (at + bytes < end)
        free_.emplace(at + bytes, end);
    free_bytes_ -= bytes;
    next_ = at + bytes;
    return at;
}

std::optional<std::uint64_t> FreeList::allocate(std::uint64_t bytes, std::uint64_t alignment) {
    if (!bytes || !alignment || bytes > free_bytes_)
        return {};
    for (auto range = free_.begin(); range != free_.end(); ++range)
        if (const auto at = take(range, base_, bytes, alignment))
            return at;
    return {};
}

std::optional<std::uint64_t> FreeList::allocate_next(std::uint64_t bytes, std::uint64_t alignment) {
    if (!bytes || !alignment || bytes > free_bytes_)
        return {};
    auto range = free_.upper_bound(next_);
    if (range != free_.begin())
        --range;
    for (const std::uint64_t from = next_; range != free_.end(); ++range)
        if (const auto at = take(range, from, bytes, alignment))
            return at;
    return allocate(bytes, alignment);
}

bool FreeList::release(std::uint64_t start, std::uint64_t bytes) {
    if (!bytes || start < base_ || start > end_ || bytes > end_ - start)
        return false;
    std::uint64_t end = start + bytes;
    auto after = free_.lower_bound(start);
    if (after != free_.end() && after->first < end)
        return false;
    if (after != free_.begin()) {
        const auto before = std::prev(after);
        if (before->second > start)
            return false;
        if (before->second == start) {
            start = before->first;
            free_.erase(before);
        }
    }
    if (after != free_.end() && after->first == end) {
        end = after->second;
        free_.erase(after);
    }
    free_.emplace(start, end);
    free_bytes_ += bytes;
    return true;
}

std::uint64_t FreeList::largest() const {
    std::uint64_t most = 0;
    for (const auto &[start, end] : free_)
        most = std::max(most, end - start);
    return most;
}

} // namespace kernloom::host
