// Accesses of tasks to tensors, found by the bytes that they touch.
//
// A tensor with few accesses has them in a list. With more, it has grids: the tensor's bytes are a
// box (Frame), a grid divides that into cells of equal size, and a cell lists the accesses that
// touch it. Accesses of similar size and shape share a grid whose cells are as large as they are,
// so that each is in few cells however many there are.
#pragma once

#include <algorithm>

#include "region.hpp"

namespace kernloom::tasks {

class Accesses {
  public:
    explicit Accesses(const Transcript &transcript) : transcript_(transcript) {
        nodes_.push_back({});
    }
    Accesses(const Accesses &) = delete;
    Accesses &operator=(const Accesses &) = delete;
    ~Accesses();

    // Remembers Transcript::regions[place]. Before, calls visit(other) -> bool for the accesses
    // that may overlap it: writes and, if it is a write itself, reads; one access possibly several
    // times. Those for which it returns true are dropped.
    template <class Visit> void add(std::uint32_t place, Visit &&visit);
    // The same for the first access to a tensor.
    void add_first(std::uint32_t place) {
        insert_in_list(tensor_of(transcript_.regions[place].tensor), place);
    }

    std::uint64_t bytes() const;

  private:
    static constexpr std::uint32_t FEW = 8;         // accesses without a grid
    static constexpr std::uint32_t MOST_GRIDS = 24; // of a tensor; the last one is a list
    static constexpr std::uint32_t MOST_PROJECTIONS = 8;
    static constexpr std::uint64_t MOST_CELLS = 1 << 20;
    static constexpr std::uint32_t AXES = KL_MAX_DIMENSIONS + 1;

    struct Node {
        std::uint32_t region; // in Transcript::regions
        std::uint32_t next;   // 0: none
    };

    struct Cell {
        std::uint32_t writes; // first node, or 0
        std::uint32_t reads;
    };

    // Divides numbers, fast if they are below 2^32.
    struct Divisor {
        std::uint64_t value;
        std::uint64_t reciprocal; // 0: none

        void set(std::uint64_t divisor) {
            value = divisor;
            reciprocal = divisor > 1 && divisor >> 32 == 0 ? ~0ull / divisor + 1 : 0;
        }
        std::uint64_t divide(std::uint64_t number) const {
            if (reciprocal && number >> 32 == 0) [[likely]]
                return static_cast<std::uint64_t>((__uint128_t(number) * reciprocal) >> 64);
            return value == 1 ? number : number / value;
        }
    };

    struct Grid {
        std::uint64_t shape;  // sizes of the accesses along each axis, as powers of two
        Divisor extent[AXES]; // of a cell
        std::uint64_t count[AXES];
        std::uint64_t natural[AXES]; // extent of a cell in the finest grid
        Cell *cells;
        std::uint64_t cells_count;
        std::uint64_t writes; // nodes in cells
        std::uint64_t reads;
        std::uint32_t next; // grid of the same tensor, or NONE
        std::uint16_t axes;
        bool is_list; // for whatever fits no other grid: one cell
        bool finest;  // its cells are as small as they can be
    };

    // How regions of one layout lie in a tensor's frame, if none of their rows crosses the end of a
    // row of the frame.
    struct Projection {
        std::uint32_t layout;
        std::uint32_t grid; // for them
        std::uint32_t next; // projection of the same tensor, or NONE
        std::uint32_t reserved;
        std::uint64_t more[AXES];               // extents - 1
        std::uint64_t inner[KL_MAX_DIMENSIONS]; // bytes that they span inside of a dimension
    };

    struct Tensor {
        Cell list;
        std::uint32_t few;   // nodes in the list
        std::uint32_t grid;  // the first one + 1; 0: none
        std::uint32_t frame; // if there are grids
    };

    struct Framed {
        Frame frame;
        Divisor pitch[KL_MAX_DIMENSIONS];
        std::uint32_t projection; // the first one, or NONE
        std::uint32_t projections;
    };

    // Cells of a box.
    struct Range {
        std::uint64_t low[AXES];
        std::uint64_t high[AXES];
        std::uint64_t cells;
    };

    Tensor &tensor_of(std::uint32_t tensor) {
        if (tensor >= tensors_.size())
            tensors_.resize(transcript_.tensors.size());
        return tensors_[tensor];
    }
    static bool is_write(const Region &region) {
        return region.access != KL_ACCESS_IN;
    }
    static Range range_of(const Grid &grid, const Box &box);
    template <class Visit> std::uint32_t walk(std::uint32_t *link, Visit &visit);
    template <class Each> static void each_cell(const Grid &grid, const Range &range, Each each);
    template <class Visit>
    void visit_cells(Grid &grid, const Range &range, bool reads, Visit &visit);

    std::uint32_t new_node(std::uint32_t region, std::uint32_t next) {
        if (const std::uint32_t place = free_) {
            free_ = nodes_[place].next;
            nodes_[place] = {region, next};
            return place;
        }
        nodes_.push_back({region, next});
        return static_cast<std::uint32_t>(nodes_.size() - 1);
    }
    void insert_in_list(Tensor &tensor, std::uint32_t place) {
        std::uint32_t &head =
            is_write(transcript_.regions[place]) ? tensor.list.writes : tensor.list.reads;
        head = new_node(place, head);
        if (++tensor.few > FEW)
            leave_list(tensor);
    }
    void insert_in_cells(Grid &grid, const Box &box, std::uint32_t place) {
        const bool write = is_write(transcript_.regions[place]);
        each_cell(grid, range_of(grid, box), [&](Cell &cell) {
            std::uint32_t &head = write ? cell.writes : cell.reads;
            head = new_node(place, head);
            write ? grid.writes++ : grid.reads++;
        });
    }
    // The box around a region, and the grid that it belongs in.
    std::uint32_t locate(Tensor &tensor, const Region &region, Box &box);
    std::uint32_t locate_slowly(Tensor &tensor, const Region &region, Box &box);
    void insert_in_grids(Tensor &tensor, std::uint32_t place);
    void leave_list(Tensor &tensor);
    std::uint32_t grid_for(Tensor &tensor, std::uint32_t number, const Box &box);
    void add_projection(Framed &framed, const Region &region, std::uint32_t grid);
    void divide(Grid &grid, const Frame &frame, std::uint64_t bytes, std::uint64_t most);
    void take_nodes(std::uint32_t head);
    void take_cells(Grid &grid);
    Array<std::uint32_t> taken();
    void rebuild(Tensor &tensor, std::uint32_t number, Grid &grid, std::uint64_t most);
    void set_frame(Tensor &tensor, const RegionView &view);

    const Transcript &transcript_;
    Array<Tensor> tensors_;
    Array<Framed> frames_;
    Array<Projection> projections_;
    Array<Grid> grids_;
    Array<Node> nodes_; // 0 is none
    std::uint32_t free_ = 0;
    Array<std::uint32_t> taken_; // regions that are being inserted again
};

// Goes along a list; returns how many accesses were dropped.
template <class Visit> std::uint32_t Accesses::walk(std::uint32_t *link, Visit &visit) {
    std::uint32_t dropped = 0;
    while (const std::uint32_t place = *link) {
        Node &node = nodes_[place];
        if (visit(transcript_.regions[node.region])) {
            *link = node.next;
            node.next = free_;
            free_ = place;
            dropped++;
        } else {
            link = &node.next;
        }
    }
    return dropped;
}

inline Accesses::Range Accesses::range_of(const Grid &grid, const Box &box) {
    Range range;
    range.cells = 1;
    for (std::uint32_t i = 0; i < grid.axes; i++) {
        const Divisor &extent = grid.extent[i];
        const std::uint64_t last = grid.count[i] - 1, low = extent.divide(box.low[i]);
        // Mostly they begin and end in the same cell.
        const std::uint64_t high =
            box.high[i] - low * extent.value < extent.value ? low : extent.divide(box.high[i]);
        range.low[i] = std::min(last, low);
        range.high[i] = std::min(last, high);
        range.cells *= range.high[i] - range.low[i] + 1;
    }
    return range;
}

template <class Each> void Accesses::each_cell(const Grid &grid, const Range &range, Each each) {
    std::uint64_t at[AXES];
    const std::uint32_t last = grid.axes - 1;
    for (std::uint32_t i = 0; i < grid.axes; i++)
        at[i] = range.low[i];
    for (;;) {
        std::uint64_t row = 0;
        for (std::uint32_t i = 0; i < last; i++)
            row = (row + at[i]) * grid.count[i + 1];
        for (std::uint64_t i = range.low[last]; i <= range.high[last]; i++)
            each(grid.cells[row + i]);
        if (range.cells == 1)
            return;
        std::uint32_t axis = last;
        for (; axis > 0; axis--) {
            if (at[axis - 1] < range.high[axis - 1]) {
                at[axis - 1]++;
                break;
            }
            at[axis - 1] = range.low[axis - 1];
        }
        if (axis == 0)
            return;
    }
}

inline std::uint32_t Accesses::locate(Tensor &tensor, const Region &region, Box &box) {
    const Framed &framed = frames_[tensor.frame];
    std::uint32_t place = framed.projection;
    while (place != NONE && projections_[place].layout != region.layout)
        place = projections_[place].next;
    if (place == NONE)
        return locate_slowly(tensor, region, box);
    const Projection &projection = projections_[place];
    std::uint64_t rest = region.begin;
    const std::uint32_t last = framed.frame.dimensions;
    for (std::uint32_t i = 0; i < last; i++) {
        const std::uint64_t pitch = framed.pitch[i].value, low = framed.pitch[i].divide(rest);
        rest -= low * pitch;
        if (rest + projection.inner[i] > pitch)
            return locate_slowly(tensor, region, box);
        box.low[i] = low;
        box.high[i] = low + projection.more[i];
    }
    box.low[last] = rest;
    box.high[last] = rest + projection.more[last];
    return projection.grid;
}

template <class Visit>
void Accesses::visit_cells(Grid &grid, const Range &range, bool reads, Visit &visit) {
    each_cell(grid, range, [&](Cell &cell) {
        if (cell.writes)
            grid.writes -= walk(&cell.writes, visit);
        if (reads && cell.reads)
            grid.reads -= walk(&cell.reads, visit);
    });
}

template <class Visit> void Accesses::add(std::uint32_t place, Visit &&visit) {
    const Region &region = transcript_.regions[place];
    const bool write = is_write(region);
    Tensor &tensor = tensor_of(region.tensor);
    if (!tensor.grid) {
        tensor.few -= walk(&tensor.list.writes, visit);
        if (write)
            tensor.few -= walk(&tensor.list.reads, visit);
        insert_in_list(tensor, place);
        return;
    }
    Box box;
    const std::uint32_t own = locate(tensor, region, box);
    for (std::uint32_t other = tensor.grid - 1; other != NONE; other = grids_[other].next) {
        Grid &grid = grids_[other];
        if (other == own || (!grid.writes && !(write && grid.reads)))
            continue;
        Range range = range_of(grid, box);
        if (range.cells > 1024 + 4 * (grid.writes + grid.reads)) [[unlikely]] {
            rebuild(tensor, region.tensor, grid, 64 + grid.writes + grid.reads);
            range = range_of(grid, box);
        }
        visit_cells(grid, range, write, visit);
    }
    Grid &grid = grids_[own];
    if (!grid.finest && grid.writes + grid.reads > 4 * grid.cells_count) [[unlikely]]
        rebuild(tensor, region.tensor, grid, MOST_CELLS);
    each_cell(grid, range_of(grid, box), [&](Cell &cell) {
        if (cell.writes)
            grid.writes -= walk(&cell.writes, visit);
        if (write && cell.reads)
            grid.reads -= walk(&cell.reads, visit);
        std::uint32_t &head = write ? cell.writes : cell.reads;
        head = new_node(place, head);
        write ? grid.writes++ : grid.reads++;
    });
}

} // namespace kernloom::tasks
