// What a recorded graph uses of the launch's tensors: the regions of all its tasks, as few as
// possible.
#pragma once

#include "layouts.hpp"

namespace kernloom::tasks {

// Regions of a recorded graph on one tensor and of one access, before they become one.
constexpr std::uint32_t MOST_OUTSIDE = 16;

// Regions that together are exactly those of the tasks of a recorded graph or, where that takes
// more than MOST_OUTSIDE, one that spans them. `layouts` gets theirs.
Array<Region> outside_of(const Transcript &body, Layouts &layouts);

} // namespace kernloom::tasks
