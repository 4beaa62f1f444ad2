#include "builtin.hpp"

namespace kernloom::core {

namespace {

enum { TILES = 2 };

std::uint64_t tile_bytes(const kl_core *core) {
    const std::uint64_t half = core->sram_bytes / TILES / 64 * 64;
    return half ? half : core->sram_bytes;
}

// Destination, source, bytes: through SRAM, with two buffers.
void copy(kl_core *core, const std::uint64_t *args) {
    const std::uint64_t to = args[0], from = args[1], bytes = args[2];
    const std::uint64_t tile = tile_bytes(core);
    const unsigned tiles = core->sram_bytes >= TILES * tile && bytes > tile ? TILES : 1;
    void *buffers[TILES] = {};
    kl_tag stores[TILES] = {};
    if (!bytes)
        return;
    for (unsigned i = 0; i < tiles; i++)
        buffers[i] = kl_allocate(core, bytes < tile ? bytes : tile);
    for (std::uint64_t at = 0, step = 0; at < bytes; at += tile, step++) {
        const std::uint64_t part = bytes - at < tile ? bytes - at : tile;
        const unsigned buffer = static_cast<unsigned>(step % tiles);
        if (stores[buffer])
            kl_wait(core, stores[buffer]);
        kl_wait(core, kl_load(core, buffers[buffer], from + at, part));
        stores[buffer] = kl_store(core, to + at, buffers[buffer], part);
    }
    for (const kl_tag store : stores)
        if (store)
            kl_wait(core, store);
}

// Source, bytes: loads that nothing uses.
void read(kl_core *core, const std::uint64_t *args) {
    const std::uint64_t from = args[0], bytes = args[1], tile = tile_bytes(core);
    if (!bytes)
        return;
    void *buffer = kl_allocate(core, bytes < tile ? bytes : tile);
    for (std::uint64_t at = 0; at < bytes; at += tile)
        kl_wait(core, kl_load(core, buffer, from + at, bytes - at < tile ? bytes - at : tile));
}

// Cycles of the scalar unit.
void spin(kl_core *core, const std::uint64_t *args) {
    kl_charge_cycles(core, KL_UNIT_SCALAR, args[0]);
}

constexpr kl_core_entry_function ENTRIES[BUILTINS] = {copy, read, spin};

} // namespace

kl_core_entry_function builtin_entry(unsigned builtin) {
    return ENTRIES[builtin];
}

} // namespace kernloom::core
