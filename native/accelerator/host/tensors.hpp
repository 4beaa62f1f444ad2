// Tensors: ranges of virtual addresses, and where their bytes are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "free_list.hpp"
#include "kernloom/fabric.hpp"

namespace kernloom::host {

// Consecutive bytes of a tensor in one PE's memory.
struct Segment {
    kl_node pe;
    std::uint64_t offset; // in the tensor
    std::uint64_t physical;
    std::uint64_t bytes;
};

struct Tensor {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::string label;
    std::uint32_t policy = KL_POLICY_OWNER;
    std::vector<Segment> segments; // a replicated one: one for each copy
    bool freed = false;

    // The mappings that a PE needs; none if it has no copy.
    std::vector<kl_mapping> mappings(kl_node pe) const;
};

struct Placement {
    std::uint64_t bytes;
    std::uint64_t unit; // of a shard; 0: equal parts
    std::uint32_t policy;
    std::string label;
    std::vector<kl_node> pes;
    // Code is at the end of memory, so that its size does not move tensors.
    bool code = false;
};

class Tensors {
  public:
    // `limit`: bytes of all tensors and copies together.
    Tensors(const kl_arch &arch, std::uint64_t limit);

    // Reserves memory and addresses; null and the problem if there is too little. The pointer lives
    // until the tensor's addresses are used again.
    Tensor *place(const Placement &placement, Outcome &problem);

    // Frees the memory and the addresses; it stays known as a freed one.
    void release(Tensor &tensor);
    // Keeps the memory, which a PE may still use, but frees the tensor.
    void abandon(Tensor &tensor);

    // The live tensor that has all bytes of a range; null and the problem.
    Tensor *find(std::uint64_t address, std::uint64_t bytes, Outcome &problem);
    // The live tensor that starts there; null and the problem.
    Tensor *find_start(std::uint64_t address, Outcome &problem);
    // A freed tensor that has a byte of the range, and no live one has; or null.
    const Tensor *freed_in(std::uint64_t address, std::uint64_t bytes) const;

    // Says which tensor an address is in or near, and where; or that it is near none.
    std::string nearest(std::uint64_t address) const;

    const FreeList &memory(kl_node pe) const {
        return memories_[index(pe)];
    }
    const FreeList &addresses() const {
        return addresses_;
    }

  private:
    std::size_t index(kl_node pe) const;
    bool reserve(Tensor &tensor, const Placement &placement, Outcome &problem);
    bool reserve_on(Tensor &tensor, kl_node pe, std::uint64_t bytes, bool code,
                    std::uint64_t &physical, Outcome &problem);
    bool shard(Tensor &tensor, const Placement &placement, Outcome &problem);
    void forget(std::uint64_t start, std::uint64_t bytes);
    void give_back(Tensor &tensor);

    // Memory of one PE that a tensor has taken.
    struct Taken {
        kl_node pe;
        std::uint64_t physical;
        std::uint64_t bytes;
    };
    struct Entry {
        Tensor tensor;
        std::vector<Taken> taken;
    };

    Entry *entry_at(std::uint64_t address);
    std::uint64_t span(std::uint64_t bytes) const;

    const kl_arch &arch_;
    std::uint64_t limit_;
    std::uint64_t used_ = 0;
    std::uint64_t page_;
    FreeList addresses_;
    std::vector<FreeList> memories_;
    std::map<std::uint64_t, Entry> tensors_; // by address
    std::vector<Taken> taking_;
};

} // namespace kernloom::host
