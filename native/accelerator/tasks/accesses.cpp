#include "accesses.hpp"

#include <bit>

namespace kernloom::tasks {

Accesses::~Accesses() {
    for (const Grid &grid : grids_)
        std::free(grid.cells);
}

std::uint64_t Accesses::bytes() const {
    std::uint64_t bytes = tensors_.bytes() + frames_.bytes() + projections_.bytes() +
                          grids_.bytes() + nodes_.bytes() + taken_.bytes();
    for (const Grid &grid : grids_)
        bytes += grid.cells_count * sizeof(Cell);
    return bytes;
}

// A tensor has more accesses than a list is good for.
void Accesses::leave_list(Tensor &tensor) {
    take_nodes(tensor.list.writes);
    take_nodes(tensor.list.reads);
    tensor = {};
    tensor.frame = static_cast<std::uint32_t>(frames_.size());
    Framed framed{};
    framed.projection = NONE;
    frames_.push_back(framed);
    for (const std::uint32_t place : taken())
        insert_in_grids(tensor, place);
}

void Accesses::insert_in_grids(Tensor &tensor, std::uint32_t place) {
    Box box;
    const std::uint32_t grid = locate(tensor, transcript_.regions[place], box);
    insert_in_cells(grids_[grid], box, place);
}

std::uint32_t Accesses::locate_slowly(Tensor &tensor, const Region &region, Box &box) {
    const RegionView view = view_of(transcript_, region);
    if (view.dimensions && !frames_[tensor.frame].frame.dimensions)
        set_frame(tensor, view);
    Framed &framed = frames_[tensor.frame];
    box = box_of(framed.frame, view);
    const std::uint32_t grid = grid_for(tensor, region.tensor, box);
    add_projection(framed, region, grid);
    return grid;
}

// Remembers how regions of a layout lie in the frame, if this one has no row that crosses the end
// of a row of the frame.
void Accesses::add_projection(Framed &framed, const Region &region, std::uint32_t grid) {
    if (framed.projections == MOST_PROJECTIONS)
        return;
    for (std::uint32_t place = framed.projection; place != NONE; place = projections_[place].next)
        if (projections_[place].layout == region.layout)
            return;
    const RegionView view = view_of(transcript_, region);
    const Frame &frame = framed.frame;
    Projection projection{region.layout, grid, framed.projection, 0, {}, {}};
    std::uint64_t span = view.span, rest = region.begin;
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < frame.dimensions; i++) {
        if (next < view.dimensions && view.dimension[next].stride == frame.pitch[i]) {
            projection.more[i] = view.dimension[next++].extent - 1;
            span -= projection.more[i] * frame.pitch[i];
        }
        projection.inner[i] = span;
        rest %= frame.pitch[i];
        if (rest + span > frame.pitch[i])
            return;
    }
    projection.more[frame.dimensions] = span - 1;
    framed.projection = static_cast<std::uint32_t>(projections_.size());
    framed.projections++;
    projections_.push_back(projection);
}

// The grid for boxes of this size; a new one if there is none.
std::uint32_t Accesses::grid_for(Tensor &tensor, std::uint32_t number, const Box &box) {
    const Frame &frame = frames_[tensor.frame].frame;
    std::uint64_t shape = 0;
    for (std::uint32_t i = 0; i <= frame.dimensions; i++)
        shape = shape << 8 | static_cast<std::uint64_t>(std::bit_width(box.high[i] - box.low[i]));
    std::uint32_t count = 0, last = NONE;
    for (std::uint32_t place = tensor.grid - 1; place != NONE; place = grids_[place].next) {
        if (grids_[place].shape == shape || ++count == MOST_GRIDS)
            return place;
        last = place;
    }
    Grid grid{};
    grid.shape = shape;
    grid.axes = static_cast<std::uint16_t>(frame.dimensions + 1);
    grid.next = NONE;
    for (std::uint32_t i = 0; i < grid.axes; i++)
        grid.natural[i] = box.high[i] - box.low[i] + 1;
    grid.is_list = count + 1 == MOST_GRIDS;
    divide(grid, frame, transcript_.tensors[number].bytes, grid.is_list ? 1 : MOST_CELLS);
    const auto added = static_cast<std::uint32_t>(grids_.size());
    grids_.push_back(grid);
    // The last one stays last: it takes what fits no other.
    (last == NONE ? tensor.grid : grids_[last].next) = last == NONE ? added + 1 : added;
    return added;
}

// Divides a tensor into cells of a grid's natural size, or larger ones if they are too many.
void Accesses::divide(Grid &grid, const Frame &frame, std::uint64_t bytes, std::uint64_t most) {
    std::uint64_t whole[AXES], extent[AXES];
    for (std::uint32_t i = 0; i < grid.axes; i++) {
        const std::uint64_t outer = i ? frame.pitch[i - 1] : std::max<std::uint64_t>(bytes, 1);
        whole[i] = i < frame.dimensions ? (outer - 1) / frame.pitch[i] + 1 : outer;
        extent[i] = grid.natural[i];
    }
    for (;;) {
        std::uint64_t cells = 1;
        std::uint32_t longest = 0;
        for (std::uint32_t i = 0; i < grid.axes; i++) {
            grid.count[i] = (whole[i] - 1) / extent[i] + 1;
            if (__builtin_mul_overflow(cells, grid.count[i], &cells))
                cells = ~0ull;
            if (grid.count[i] > grid.count[longest])
                longest = i;
        }
        if (cells <= most || grid.count[longest] == 1) {
            grid.cells_count = cells;
            break;
        }
        extent[longest] *= 2;
    }
    grid.finest = grid.is_list || most == MOST_CELLS;
    for (std::uint32_t i = 0; i < grid.axes; i++)
        grid.extent[i].set(extent[i]);
    std::free(grid.cells);
    grid.cells = static_cast<Cell *>(std::calloc(grid.cells_count, sizeof(Cell)));
    if (!grid.cells)
        throw std::bad_alloc();
}

void Accesses::take_nodes(std::uint32_t head) {
    while (head) {
        Node &node = nodes_[head];
        taken_.push_back(node.region);
        const std::uint32_t next = node.next;
        node.next = free_;
        free_ = head;
        head = next;
    }
}

void Accesses::take_cells(Grid &grid) {
    for (std::uint64_t i = 0; i < grid.cells_count; i++) {
        take_nodes(grid.cells[i].writes);
        take_nodes(grid.cells[i].reads);
        grid.cells[i] = {};
    }
    grid.writes = grid.reads = 0;
}

// The regions that were taken out, each once, in order.
Array<std::uint32_t> Accesses::taken() {
    std::sort(taken_.begin(), taken_.end());
    const auto *const end = std::unique(taken_.begin(), taken_.end());
    taken_.truncate(static_cast<std::size_t>(end - taken_.begin()));
    return std::move(taken_);
}

// Gives a grid fewer or more cells.
void Accesses::rebuild(Tensor &tensor, std::uint32_t number, Grid &grid, std::uint64_t most) {
    const Frame &frame = frames_[tensor.frame].frame;
    take_cells(grid);
    divide(grid, frame, transcript_.tensors[number].bytes, most);
    for (const std::uint32_t place : taken())
        insert_in_cells(grid, box_of(frame, view_of(transcript_, transcript_.regions[place])),
                        place);
}

// The first region with dimensions says what the tensor looks like: all grids are made anew.
void Accesses::set_frame(Tensor &tensor, const RegionView &view) {
    for (std::uint32_t place = tensor.grid - 1; place != NONE; place = grids_[place].next) {
        Grid &grid = grids_[place];
        take_cells(grid);
        std::free(grid.cells);
        grid.cells = nullptr;
        grid.cells_count = 0;
    }
    tensor.grid = 0;
    Framed &framed = frames_[tensor.frame];
    framed = {};
    framed.projection = NONE;
    framed.frame.dimensions = view.dimensions;
    for (std::uint32_t i = 0; i < view.dimensions; i++) {
        framed.frame.pitch[i] = view.dimension[i].stride;
        framed.pitch[i].set(view.dimension[i].stride);
    }
    for (const std::uint32_t place : taken())
        insert_in_grids(tensor, place);
}

} // namespace kernloom::tasks
