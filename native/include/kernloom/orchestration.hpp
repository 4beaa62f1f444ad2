// The API of orchestrations for C++.
//
//     extern "C" void kl_orchestrate(struct kl_orchestrator *self) {
//         kernloom::Orchestration tasks(self);
//         const auto a = tasks.tensor<float>(0, {m, k});
//         for (uint64_t i = 0; i < m; i += 64)
//             tasks.submit(kernel).in(a.box({i, 0}, {64, k})).out(c.box({i, 0}, {64, n})).value(k);
//     }
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "kernloom/orchestration.h"

namespace kernloom {

template <class T> constexpr uint32_t dtype_of = KL_DTYPES;
template <> inline constexpr uint32_t dtype_of<float> = KL_DTYPE_FLOAT32;
template <> inline constexpr uint32_t dtype_of<double> = KL_DTYPE_FLOAT64;
template <> inline constexpr uint32_t dtype_of<int32_t> = KL_DTYPE_INT32;
template <> inline constexpr uint32_t dtype_of<int64_t> = KL_DTYPE_INT64;
template <> inline constexpr uint32_t dtype_of<uint8_t> = KL_DTYPE_UINT8;

using Shape = std::initializer_list<uint64_t>;

// A dense tensor, row by row. As a region it is all of it. Too many dimensions are counted, and
// refused by `submit` with the name and the number of the task.
class Tensor {
  public:
    Tensor(kl_tensor tensor, uint32_t dtype, Shape shape) : region_{} {
        region_.tensor = tensor;
        region_.dtype = dtype;
        region_.dimensions = static_cast<uint32_t>(shape.size());
        const uint32_t used = std::min<uint32_t>(region_.dimensions, KL_MAX_DIMENSIONS);
        std::copy_n(shape.begin(), used, region_.shape);
        uint64_t stride = 1;
        for (uint32_t i = used; i-- > 0;) {
            region_.strides[i] = stride;
            stride *= region_.shape[i];
        }
    }

    kl_tensor id() const {
        return region_.tensor;
    }

    const kl_region &all() const {
        return region_;
    }
    operator const kl_region &() const {
        return region_;
    }

    // A box of it: where it begins, and how large it is in each dimension. The last dimensions may
    // be left out: it has all of them.
    kl_region box(Shape begin, Shape shape) const {
        kl_region part = region_;
        if (part.dimensions > KL_MAX_DIMENSIONS)
            return part;
        if (begin.size() > part.dimensions || shape.size() > part.dimensions) {
            part.dimensions = KL_WRONG_BOX;
            return part;
        }
        for (uint32_t i = 0; i < begin.size(); i++)
            part.offset += begin.begin()[i] * part.strides[i];
        std::copy(shape.begin(), shape.end(), part.shape);
        return part;
    }

  private:
    kl_region region_;
};

// A task being described; it is submitted by `submit`, or at the end of the statement.
class Submission {
  public:
    Submission(kl_orchestrator *self, uint32_t kernel) : self_(self) {
        submission_.kernel = kernel;
        submission_.arguments = arguments_;
    }
    Submission(const Submission &) = delete;
    Submission &operator=(const Submission &) = delete;
    // The runtime ends an orchestration that submits too many tasks by an exception.
    ~Submission() noexcept(false) {
        submit();
    }

    Submission &name(const char *name) {
        submission_.name = name;
        return *this;
    }
    Submission &in(const kl_region &region) {
        return tensor(KL_ACCESS_IN, region, region.offset);
    }
    // Output to an existing tensor.
    Submission &out(const kl_region &region) {
        return tensor(KL_ACCESS_WRITE, region, region.offset);
    }
    Submission &inout(const kl_region &region) {
        return tensor(KL_ACCESS_INOUT, region, region.offset);
    }
    Submission &address(const kl_region &region) {
        return tensor(KL_ACCESS_NONE, region, region.offset);
    }
    // A new tensor; `new_tensor` returns it.
    template <class T> Submission &output(Shape shape) {
        static_assert(dtype_of<T> != KL_DTYPES, "tensors have no elements of this type");
        return tensor(KL_ACCESS_OUT, Tensor(0, dtype_of<T>, shape).all(), 0);
    }
    // The kernel gets the address of element `origin` of the tensor.
    Submission &tensor(uint32_t access, const kl_region &region, uint64_t origin) {
        if (kl_task_argument *argument = next()) {
            argument->type = KL_ARGUMENT_TENSOR;
            argument->access = access;
            argument->bits = 0;
            argument->origin = origin;
            copy(argument->region, region);
        }
        return *this;
    }
    template <class T> Submission &value(T value) {
        static_assert(sizeof value <= sizeof(uint64_t));
        if (kl_task_argument *argument = next()) {
            argument->type = KL_ARGUMENT_VALUE;
            argument->bits = 0;
            std::memcpy(&argument->bits, &value, sizeof value);
        }
        return *this;
    }
    // The launch's value at this place; a recorded graph takes it anew with each submission.
    Submission &launch_value(uint32_t place) {
        if (kl_task_argument *argument = next()) {
            argument->type = KL_ARGUMENT_LAUNCH_VALUE;
            argument->bits = place;
        }
        return *this;
    }
    Submission &after(kl_task task) {
        if (submission_.after_count < USUAL_AFTER) {
            after_[submission_.after_count++] = task;
            submission_.after = after_;
            return *this;
        }
        if (many_after_.empty())
            many_after_.assign(after_, after_ + USUAL_AFTER);
        many_after_.push_back(task);
        submission_.after_count++;
        submission_.after = many_after_.data();
        return *this;
    }
    // More than can be counted are refused like the most that can.
    Submission &blocks(uint64_t blocks) {
        submission_.blocks = static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX));
        return *this;
    }
    Submission &block(uint32_t block, uint32_t of_blocks) {
        submission_.block = block;
        submission_.of_blocks = of_blocks;
        return *this;
    }
    Submission &sync_start() {
        submission_.sync_start = 1;
        return *this;
    }
    Submission &vectors(uint32_t vectors, uint32_t kernel) {
        submission_.vectors = vectors;
        submission_.vector_kernel = kernel;
        return *this;
    }
    Submission &only_if(const kl_predicate &predicate) {
        predicate_ = predicate;
        submission_.predicate = &predicate_;
        return *this;
    }

    kl_task submit() {
        if (!submitted_) {
            submitted_ = true;
            task_ = self_->functions->submit(self_, &submission_);
        }
        return task_;
    }
    // Submits the task and returns the new tensor of the argument with this place among all
    // arguments.
    kl_tensor new_tensor(uint32_t argument) {
        submit();
        if (argument < submission_.arguments_count && argument < KL_MAX_TASK_ARGUMENTS &&
            arguments_[argument].type == KL_ARGUMENT_TENSOR &&
            arguments_[argument].access == KL_ACCESS_OUT)
            return arguments_[argument].region.tensor;
        char message[200];
        std::snprintf(message, sizeof message,
                      "argument %u of task '%.100s' (handle %u) is no new tensor", argument,
                      submission_.name ? submission_.name : "", task_);
        self_->functions->fail(self_, message);
        return 0;
    }

  private:
    static constexpr uint32_t USUAL_AFTER = 32;

    // Field by field, and only the dimensions in use: much faster than the whole of a region that
    // has just been put together.
    static void copy(kl_region &to, const kl_region &from) {
        to.tensor = from.tensor;
        to.dtype = from.dtype;
        to.dimensions = from.dimensions;
        to.reserved = 0;
        to.offset = from.offset;
        for (uint32_t i = 0; i < from.dimensions && i < KL_MAX_DIMENSIONS; i++) {
            to.shape[i] = from.shape[i];
            to.strides[i] = from.strides[i];
        }
    }

    // Too many are counted, and refused by `submit` with the name and the number of the task.
    kl_task_argument *next() {
        const uint32_t place = submission_.arguments_count++;
        return place < KL_MAX_TASK_ARGUMENTS ? &arguments_[place] : nullptr;
    }

    kl_orchestrator *self_;
    kl_submission submission_{};
    kl_predicate predicate_{};
    kl_task task_ = 0;
    bool submitted_ = false;
    kl_task after_[USUAL_AFTER];
    std::vector<kl_task> many_after_; // if there are more
    kl_task_argument arguments_[KL_MAX_TASK_ARGUMENTS];
};

class Orchestration {
  public:
    explicit Orchestration(kl_orchestrator *self) : self_(self) {
    }

    template <class T> Tensor tensor(kl_tensor tensor, Shape shape) const {
        static_assert(dtype_of<T> != KL_DTYPES, "tensors have no elements of this type");
        return {tensor, dtype_of<T>, shape};
    }
    template <class T> T value(uint32_t place) const {
        T value{};
        static_assert(sizeof value <= sizeof(uint64_t));
        if (place < self_->values_count)
            std::memcpy(&value, &self_->values[place], sizeof value);
        else
            self_->functions->fail(self_,
                                   "the launch has fewer values than the orchestration uses");
        return value;
    }
    uint32_t kernel(const char *name) const {
        return self_->functions->find_kernel(self_, name);
    }
    Submission submit(uint32_t kernel) const {
        return {self_, kernel};
    }
    Submission dummy() const {
        return {self_, KL_NO_KERNEL};
    }
    void barrier() const {
        self_->functions->barrier(self_);
    }
    kl_graph begin_graph(const char *name) const {
        return self_->functions->begin_graph(self_, name);
    }
    void end_graph() const {
        self_->functions->end_graph(self_);
    }
    kl_task submit_graph(kl_graph graph, const kl_tensor *tensors = nullptr,
                         const uint64_t *values = nullptr) const {
        return self_->functions->submit_graph(self_, graph, tensors, values);
    }
    void fail(const char *message) const {
        self_->functions->fail(self_, message);
    }
    uint32_t pes(uint32_t core_type) const {
        return core_type < KL_UNIT_SCALAR ? self_->pes[core_type] : 0;
    }
    uint32_t cubes() const {
        return self_->cubes;
    }
    kl_orchestrator *c() const {
        return self_;
    }

  private:
    kl_orchestrator *self_;
};

// A scope for as long as the object lives.
class Scope {
  public:
    explicit Scope(const Orchestration &tasks, uint32_t kind = KL_SCOPE_DERIVED)
        : self_(tasks.c()) {
        self_->functions->begin_scope(self_, kind);
    }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;
    ~Scope() {
        self_->functions->end_scope(self_);
    }

  private:
    kl_orchestrator *self_;
};

} // namespace kernloom
