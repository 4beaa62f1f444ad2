// A tree of sums: the leaves add up parts of x, and every level those of the level before, until one is left.
#include "workload.hpp"

using namespace kernloom;

extern "C" void kl_orchestrate(struct kl_orchestrator *self)
{
    using Element = Launch::Element;
    const Orchestration tasks(self);
    const Launch w(tasks);
    const uint64_t width = std::max<uint64_t>(w.width, 2);
    Tensor from = w.x;
    uint64_t count = w.n, each = std::max<uint64_t>(w.leaf, 1);
    for (;;) {
        const uint64_t sums = ceil_div(count, each);
        // A level is a new tensor, and a task without work allocates it.
        Tensor to = w.y;
        if (sums > 1) {
            auto level = tasks.dummy();
            to = tasks.tensor<Element>(level.name("level").output<Element>({sums}).new_tensor(0), {sums});
        }
        // A scope of their own, so that their slots in a ring are free while the level's tensor lives on.
        const Scope scope(tasks);
        for (uint64_t i = 0; i < sums; i++) {
            const Range range{i * each, std::min((i + 1) * each, count)};
            tasks.submit(w.add).name("add").value(range.count()).in(part(from, {range})).out(part(to, {{i, i + 1}}));
        }
        if (sums == 1)
            return;
        from = to;
        count = sums;
        each = width;
    }
}
