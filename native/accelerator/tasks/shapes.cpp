#include "shapes.hpp"

#include <algorithm>

namespace kernloom::tasks {

const Shapes::Known *Shapes::learn(const kl_region &region, bool is_new, std::uint32_t place,
                                   Outcome &problem) {
    const auto refuse = [&](std::uint32_t status, std::string detail) -> const Known * {
        problem = Outcome::failure(status, std::move(detail));
        return nullptr;
    };
    Known &known = known_[place];
    known.item = 0; // until all is well
    const std::uint64_t item = bytes_of_dtype(region.dtype);
    if (!item)
        return refuse(KL_STATUS_INVALID, text_of("there is no element type %u", region.dtype));
    if (region.dimensions == KL_WRONG_BOX)
        return refuse(KL_STATUS_OUT_OF_BOUNDS, "a box has more dimensions than its tensor");
    const std::uint32_t used = std::min<std::uint32_t>(region.dimensions, KL_MAX_DIMENSIONS);
    kl_region wanted{};
    wanted.dtype = region.dtype;
    if (is_new) {
        // Dense, whatever its strides.
        wanted.dimensions = 1;
        wanted.shape[0] = 1;
        wanted.strides[0] = 1;
        for (std::uint32_t i = 0; i < used; i++)
            if (__builtin_mul_overflow(wanted.shape[0], region.shape[i], &wanted.shape[0]))
                return refuse(KL_STATUS_INVALID, "the output is too large to be counted");
    } else {
        wanted.dimensions = used;
        std::copy(region.shape, region.shape + used, wanted.shape);
        std::copy(region.strides, region.strides + used, wanted.strides);
    }
    NewLayout layout;
    if (region.dimensions > KL_MAX_DIMENSIONS || !normalise(wanted, layout))
        return refuse(KL_STATUS_OUT_OF_BOUNDS,
                      region.dimensions > KL_MAX_DIMENSIONS
                          ? text_of("a region has at most %u dimensions, not %u",
                                    static_cast<unsigned>(KL_MAX_DIMENSIONS), region.dimensions)
                          : "its region ends beyond every tensor");
    known.dtype = region.dtype;
    known.dimensions = region.dimensions;
    known.is_new = is_new;
    known.layout = layouts_.intern(layout);
    known.item = item;
    known.span = layout.span;
    std::copy(region.shape, region.shape + region.dimensions, known.shape);
    std::copy(region.strides, region.strides + region.dimensions, known.strides);
    return &known;
}

} // namespace kernloom::tasks
