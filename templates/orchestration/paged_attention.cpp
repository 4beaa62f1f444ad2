// Paged attention: for each page of a sequence scores (matrix PE), weights (vector PE), weighted values (matrix PE), and
// the merge with the pages before (vector PE). Pages of a sequence are merged in order; all else may run at once.
#include <optional>

#include "workload.hpp"

using namespace kernloom;

namespace {

using Element = Launch::Element;

// The tasks of one page, for one sequence or, as blocks of one task each, for several.
class Page {
  public:
    Page(const Orchestration &tasks, const Launch &w, uint64_t first, uint64_t count, uint64_t at)
        : tasks_(tasks), w_(w), first_(first), count_(count), at_(at)
    {
    }

    // `before`: the task that merged the page before; 0 in a scope that derives dependencies.
    kl_task submit(kl_tensor &state, kl_task before, bool manual) const
    {
        const uint32_t blocks = static_cast<uint32_t>(count_);
        auto scoring = tasks_.submit(w_.score);
        scoring.name("score").blocks(blocks)
            .value(first_).value(at_).value(w_.heads).value(w_.dim).value(w_.page).value(w_.pages).value(w_.length)
            .value(Element(w_.scale))
            .tensor(KL_ACCESS_IN, sequences(w_.q), 0)
            .in(w_.table.all())
            .in(w_.keys.all())
            .output<Element>({count_, w_.heads, w_.page});
        const Tensor scores = own(scoring.new_tensor(11), {count_, w_.heads, w_.page});

        auto weighing = tasks_.submit(w_.weigh);
        weighing.name("weigh").blocks(blocks)
            .value(w_.heads).value(w_.page)
            .in(scores.all())
            .output<Element>({count_, w_.heads, w_.page})
            .output<Element>({count_, w_.heads, 2});
        if (manual)
            weighing.after(scoring.submit());
        const Tensor weights = own(weighing.new_tensor(3), {count_, w_.heads, w_.page});
        const Tensor stats = own(weighing.new_tensor(4), {count_, w_.heads, 2});

        auto applying = tasks_.submit(w_.apply);
        applying.name("apply").blocks(blocks)
            .value(first_).value(at_).value(w_.heads).value(w_.dim).value(w_.page).value(w_.pages).value(w_.length)
            .in(weights.all())
            .in(w_.table.all())
            .in(w_.values.all())
            .output<Element>({count_, w_.heads, w_.dim});
        if (manual)
            applying.after(weighing.submit());
        const Tensor result = own(applying.new_tensor(10), {count_, w_.heads, w_.dim});

        const bool fresh = at_ == 0;
        auto merging = tasks_.submit(w_.merge);
        merging.name("merge").blocks(blocks)
            .value(first_).value(uint64_t(fresh ? 1 : 2)).value(w_.heads).value(w_.dim)
            .in(stats.all())
            .in(result.all());
        if (fresh)
            merging.output<Element>({count_, w_.heads, 2}).tensor(KL_ACCESS_WRITE, sequences(w_.y), 0);
        else
            merging.inout(own(state, {count_, w_.heads, 2}).all()).tensor(KL_ACCESS_INOUT, sequences(w_.y), 0);
        if (manual) {
            merging.after(applying.submit());
            if (before)
                merging.after(before);
        }
        const kl_task merged = merging.submit();
        if (fresh)
            state = merging.new_tensor(6);
        return merged;
    }

  private:
    Tensor own(kl_tensor tensor, Shape shape) const
    {
        return tasks_.tensor<Element>(tensor, shape);
    }
    kl_region sequences(const Tensor &tensor) const
    {
        return part(tensor, {{first_, first_ + count_}, {0, w_.heads}, {0, w_.dim}});
    }

    const Orchestration &tasks_;
    const Launch &w_;
    uint64_t first_, count_, at_;
};

// All pages of some sequences. What a page needs for itself dies with it, but for the first: its state is that of all.
void attend(const Orchestration &tasks, const Launch &w, uint64_t first, uint64_t count, bool manual)
{
    const uint32_t kind = manual ? KL_SCOPE_MANUAL : KL_SCOPE_DERIVED;
    const Scope scope(tasks, kind);
    kl_tensor state = 0;
    kl_task before = 0;
    for (uint64_t at = 0; at < w.length; at++) {
        std::optional<Scope> page;
        if (at > 0)
            page.emplace(tasks, kind);
        before = Page(tasks, w, first, count, at).submit(state, before, manual);
    }
}

} // namespace

extern "C" void kl_orchestrate(struct kl_orchestrator *self)
{
    const Orchestration tasks(self);
    const Launch w(tasks);
    if (w.mode == 2.0) {
        attend(tasks, w, 0, w.batch, false);
        return;
    }
    for (uint64_t sequence = 0; sequence < w.batch; sequence++)
        attend(tasks, w, sequence, 1, w.mode == 1.0);
}
