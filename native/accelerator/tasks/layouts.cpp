#include "layouts.hpp"

namespace kernloom::tasks {

std::uint32_t Layouts::intern(const NewLayout &layout) {
    std::uint64_t hash = layout.run * 0x9E3779B97F4A7C15;
    for (std::uint32_t i = 0; i < layout.dimensions; i++) {
        hash = (hash ^ layout.dimension[i].extent) * 0x9E3779B97F4A7C15;
        hash = (hash ^ hash >> 29 ^ layout.dimension[i].stride) * 0xBF58476D1CE4E5B9;
    }
    const auto [first, last] = places_.equal_range(hash);
    for (auto known = first; known != last; ++known)
        if (same(transcript_.layouts[known->second], layout))
            return known->second;
    const auto place = static_cast<std::uint32_t>(transcript_.layouts.size());
    const auto dimension = static_cast<std::uint32_t>(transcript_.dimensions.size());
    transcript_.layouts.push_back({layout.run, layout.span, dimension, layout.dimensions});
    transcript_.dimensions.append(layout.dimension, layout.dimensions);
    places_.emplace(hash, place);
    return place;
}

bool Layouts::same(const Layout &known, const NewLayout &layout) const {
    if (known.run != layout.run || known.span != layout.span ||
        known.dimensions != layout.dimensions)
        return false;
    const Dimension *const dimension = transcript_.dimensions.data() + known.first_dimension;
    for (std::uint32_t i = 0; i < layout.dimensions; i++)
        if (dimension[i].extent != layout.dimension[i].extent ||
            dimension[i].stride != layout.dimension[i].stride)
            return false;
    return true;
}

} // namespace kernloom::tasks
