// The orchestration that carries out scripts. Value 0 is a salt, the script follows.
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernloom/orchestration.hpp"
#include "script.hpp"

namespace {

class Reader {
  public:
    explicit Reader(kl_orchestrator *self) : self_(self), tasks_(self) {
    }

    void run() {
        std::uint64_t at = 1;
        while (at < self_->values_count) {
            switch (self_->values[at++]) {
            case script::SUBMIT: {
                script::Submit one;
                std::memcpy(static_cast<void *>(&one), self_->values + at, sizeof one);
                at += script::SUBMIT_WORDS;
                submit(one);
                break;
            }
            case script::BARRIER:
                tasks_.barrier();
                handles().push_back(0);
                break;
            case script::BEGIN_SCOPE:
                self_->functions->begin_scope(self_,
                                              static_cast<std::uint32_t>(self_->values[at++]));
                break;
            case script::END_SCOPE:
                self_->functions->end_scope(self_);
                break;
            case script::BEGIN_GRAPH:
                graphs_.push_back(tasks_.begin_graph("graph"));
                recording_ = true;
                inner_.clear();
                break;
            case script::END_GRAPH:
                tasks_.end_graph();
                recording_ = false;
                break;
            case script::SUBMIT_GRAPH: {
                const std::uint64_t graph = self_->values[at++], salt = self_->values[at++];
                std::vector<kl_tensor> tensors;
                for (std::uint32_t i = 0; i < self_->tensors_count; i++)
                    tensors.push_back(static_cast<kl_tensor>(self_->values[at++]));
                std::vector<std::uint64_t> values(self_->values,
                                                  self_->values + self_->values_count);
                values[0] = salt;
                handles().push_back(
                    tasks_.submit_graph(graphs_.at(graph), tensors.data(), values.data()));
                break;
            }
            case script::FAIL:
                tasks_.fail("as the script says");
                break;
            case script::THROW:
                throw std::runtime_error("as the script says");
            case script::FLOOD:
                for (;;)
                    tasks_.dummy().submit();
            default:
                return;
            }
        }
    }

  private:
    std::vector<kl_task> &handles() {
        return recording_ ? inner_ : handles_;
    }

    void submit(const script::Submit &one) {
        kernloom::Submission task = tasks_.submit(static_cast<std::uint32_t>(one.kernel));
        std::vector<std::uint32_t> outputs;
        for (const script::Part &part : one.parts) {
            kl_region region{};
            region.tensor = tensor(part.tensor);
            region.dtype = KL_DTYPE_INT32;
            region.dimensions = 2;
            region.offset = part.offset;
            region.shape[0] = part.rows;
            region.shape[1] = part.columns;
            region.strides[0] = part.stride;
            region.strides[1] = 1;
            const auto number = static_cast<std::uint64_t>(&part - one.parts) + 1;
            if (number == one.shortened)
                region.shape[0]--;
            if (part.access == KL_ACCESS_OUT)
                outputs.push_back(static_cast<std::uint32_t>(&part - one.parts));
            if (one.kernel != script::NO_KERNEL || part.rows)
                task.tensor(number == one.as_input ? std::uint32_t{KL_ACCESS_IN}
                                                   : static_cast<std::uint32_t>(part.access),
                            region, part.access == KL_ACCESS_OUT ? 0 : part.offset);
        }
        if (one.kernel != script::NO_KERNEL) {
            for (const script::Part &part : one.parts)
                task.value(part.rows)
                    .value(part.columns)
                    .value(part.access == KL_ACCESS_OUT ? part.columns : part.stride);
            if (one.launch_salt)
                task.launch_value(0);
            else
                task.value(one.salt);
            task.value(one.cycles);
            task.value(std::uint64_t{one.parts[1].access == KL_ACCESS_INOUT} |
                       std::uint64_t{one.parts[2].access == KL_ACCESS_INOUT} << 1);
        }
        if (one.blocks)
            task.blocks(static_cast<std::uint32_t>(one.blocks));
        if (one.sync_start)
            task.sync_start();
        if (one.vectors)
            task.vectors(static_cast<std::uint32_t>(one.vectors),
                         static_cast<std::uint32_t>(one.vector_kernel));
        for (std::uint64_t i = 0; i < one.after_count; i++)
            task.after(one.after[i] < handles().size() ? handles()[one.after[i]]
                                                       : static_cast<kl_task>(one.after[i]));
        if (one.predicated) {
            kl_predicate predicate{};
            predicate.tensor = tensor(one.predicate_tensor);
            predicate.dtype = KL_DTYPE_INT32;
            predicate.element = one.predicate_element;
            predicate.comparison = static_cast<std::uint32_t>(one.comparison);
            predicate.value.integer = static_cast<std::int64_t>(one.compared);
            task.only_if(predicate);
        }
        handles().push_back(task.submit());
        for (const std::uint32_t place : outputs)
            outputs_.push_back(task.new_tensor(place));
    }

    kl_tensor tensor(std::uint64_t number) const {
        if (number < script::OUTPUT)
            return static_cast<kl_tensor>(number);
        return number - script::OUTPUT < outputs_.size() ? outputs_[number - script::OUTPUT] : 0;
    }

    kl_orchestrator *self_;
    kernloom::Orchestration tasks_;
    std::vector<kl_task> handles_, inner_;
    std::vector<kl_tensor> outputs_;
    std::vector<kl_graph> graphs_;
    bool recording_ = false;
};

} // namespace

extern "C" __attribute__((visibility("default"))) void kl_orchestrate(kl_orchestrator *self) {
    Reader(self).run();
}
