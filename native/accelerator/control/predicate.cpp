#include "predicate.hpp"

#include <cstdint>
#include <cstring>

namespace kernloom::control {

namespace {

template <class T> int compare(T a, T b) {
    return a < b ? -1 : a > b ? 1 : 0;
}

bool holds(std::uint32_t comparison, int order, bool ordered) {
    switch (comparison) {
    case KL_EQUAL:
        return ordered && order == 0;
    case KL_NOT_EQUAL:
        return !ordered || order != 0;
    case KL_LESS:
        return ordered && order < 0;
    case KL_LESS_OR_EQUAL:
        return ordered && order <= 0;
    case KL_GREATER:
        return ordered && order > 0;
    default:
        return ordered && order >= 0;
    }
}

template <class T> T as(const unsigned char *data) {
    T value;
    std::memcpy(&value, data, sizeof value);
    return value;
}

} // namespace

bool holds(const kl_predicate &predicate, const unsigned char *element) {
    const std::int64_t integer = predicate.value.integer;
    const double real = predicate.value.real;
    switch (predicate.dtype) {
    case KL_DTYPE_FLOAT32:
    case KL_DTYPE_FLOAT64: {
        const double value = predicate.dtype == KL_DTYPE_FLOAT32
                                 ? static_cast<double>(as<float>(element))
                                 : as<double>(element);
        return holds(predicate.comparison, compare(value, real), value == value && real == real);
    }
    case KL_DTYPE_INT32:
        return holds(predicate.comparison,
                     compare<std::int64_t>(as<std::int32_t>(element), integer), true);
    case KL_DTYPE_INT64:
        return holds(predicate.comparison, compare(as<std::int64_t>(element), integer), true);
    default:
        return holds(predicate.comparison, compare<std::int64_t>(*element, integer), true);
    }
}

} // namespace kernloom::control
