/* The kernel of scripts; compiled for matrix and for vector PEs (CORE_TYPE, LANE). */
#include "kernloom/core.h"

__attribute__((visibility("default"))) const uint32_t kl_core_type = CORE_TYPE;

/* Arguments: 3 addresses; rows, columns and stride of each; salt; cycles; which outputs are also
 * inputs. LANE: the output. */
__attribute__((visibility("default"))) void kl_core_entry(struct kl_core *core,
                                                          const uint64_t *args) {
    const uint64_t *from = args + 3, *to = args + 3 + 3 * LANE;
    const uint64_t salt = args[12], keep = args[14] >> (LANE - 1) & 1;
    const uint64_t columns = to[1], bytes = columns * 4;
    if (salt == 0xBAD5A17)
        return core->functions->fail(core, "as the script says");
    if (to[0] && columns) {
        uint32_t *out = kl_allocate(core, bytes);
        uint32_t *in = kl_allocate(core, from[1] ? from[1] * 4 : 4);
        for (uint64_t row = core->block; row < to[0]; row += core->blocks) {
            const uint64_t at = args[LANE] + row * to[2] * 4;
            for (uint64_t i = 0; i < columns; i++)
                out[i] = 0;
            if (keep)
                kl_wait(core, kl_load(core, out, at, bytes));
            if (from[0])
                kl_wait(core,
                        kl_load(core, in, args[0] + row % from[0] * from[2] * 4, from[1] * 4));
            for (uint64_t i = 0; i < columns; i++)
                out[i] = out[i] * 31 + (from[0] ? in[i % from[1]] * 7 : 0) + (uint32_t)salt;
            kl_wait(core, kl_store(core, at, out, bytes));
        }
    }
    kl_charge_cycles(core, KL_UNIT_SCALAR, args[13]);
}
