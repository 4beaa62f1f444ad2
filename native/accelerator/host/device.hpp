// Operations of the host on an accelerator's memory; all data goes through the fabric.
#pragma once

#include "exchange.hpp"
#include "tensors.hpp"

namespace kernloom::host {

class Device {
  public:
    Device(const kl_platform &platform, Exchange &exchange, Tensors &tensors);

    bool exists(kl_node pe) const;
    const std::vector<kl_node> &all() const {
        return all_;
    }

    // Reserves a tensor and maps it; if a PE refuses, all is as it was before. Answers are those of
    // the PEs that map it.
    Tensor *place(const Placement &placement, Outcome &problem, std::vector<Answer> &answers);
    Outcome release(Tensor &tensor);

    // By virtual address, wherever the bytes are; a write reaches all copies.
    Outcome write(std::uint64_t address, unsigned char *data, std::uint64_t bytes);
    Outcome read(std::uint64_t address, unsigned char *data, std::uint64_t bytes);
    Outcome fill(std::uint64_t address, std::uint32_t value, std::uint64_t bytes);

    // The same mappings on several PEs, or on none.
    std::vector<Answer> map(const std::vector<kl_node> &pes,
                            const std::vector<kl_mapping> &mappings);
    std::vector<Answer> unmap(const std::vector<kl_node> &pes, std::uint64_t address,
                              std::uint64_t bytes);

  private:
    struct Piece {
        const Segment *segment;
        std::uint64_t physical;
        std::uint64_t offset; // in the data
        std::uint64_t bytes;
    };

    std::vector<kl_node> mapped_on(const Tensor &tensor) const;
    std::vector<Piece> pieces(const Tensor &tensor, std::uint64_t offset, std::uint64_t bytes,
                              bool all_copies) const;
    void send_map(kl_node pe, const std::vector<kl_mapping> &mappings);
    void send_unmap(kl_node pe, std::uint64_t address, std::uint64_t bytes);

    const kl_platform &platform_;
    Exchange &exchange_;
    Tensors &tensors_;
    std::vector<kl_node> all_;
};

// The first answer that is a failure, or null.
const Answer *failed(const std::vector<Answer> &answers);

} // namespace kernloom::host
