// Independent products. The first one of a chain writes the result, the others a tensor of their own, which a vector PE
// adds to it.
#include "workload.hpp"

using namespace kernloom;

extern "C" void kl_orchestrate(struct kl_orchestrator *self)
{
    using Element = Launch::Element;
    const Orchestration tasks(self);
    const Launch w(tasks);
    const uint64_t elements = w.tile * w.tile;
    for (uint64_t one = 0; one < w.batch; one++) {
        const kl_region result = part(w.C, {{one, one + 1}, {0, w.tile}, {0, w.tile}});
        for (uint64_t link = 0; link < w.depth; link++) {
            const Scope scope(tasks);
            auto product = tasks.submit(w.multiply);
            product.name("multiply").value(w.tile).value(w.tile).value(w.span)
                .in(part(w.A, {{one, one + 1}, {link, link + 1}, {0, w.tile}, {0, w.span}}))
                .in(part(w.B, {{one, one + 1}, {link, link + 1}, {0, w.span}, {0, w.tile}}));
            if (link == 0) {
                product.out(result);
                continue;
            }
            product.output<Element>({elements});
            const Tensor more = tasks.tensor<Element>(product.new_tensor(5), {elements});
            tasks.submit(w.add).name("add").value(elements).value(Element(1)).in(more.all()).inout(result);
        }
    }
}
