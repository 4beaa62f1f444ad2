// The layouts of a transcript, each once.
#pragma once

#include <unordered_map>

#include "region.hpp"

namespace kernloom::tasks {

class Layouts {
  public:
    explicit Layouts(Transcript &transcript) : transcript_(transcript) {
    }

    // Its place.
    std::uint32_t intern(const NewLayout &layout);

  private:
    bool same(const Layout &known, const NewLayout &layout) const;

    Transcript &transcript_;
    std::unordered_multimap<std::uint64_t, std::uint32_t> places_; // by hash
};

} // namespace kernloom::tasks
