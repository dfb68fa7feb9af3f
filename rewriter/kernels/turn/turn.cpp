#include "turn/turn.h"

#include <algorithm>

#include "turn/cells.h"
#include "turn/units.h"

namespace warpfuse {
namespace {

constexpr std::int64_t stream_bytes = 32 << 20; // such an output leaves the caches before anyone reads it
constexpr std::int64_t line = 64;
constexpr std::int64_t page = 4096;

std::int64_t elements(const TurnJob& job) { return job.outer * job.a * job.middle * job.b * job.inner; }

// The same moves with fewer axes, where some are of length 1.
TurnJob simplified(TurnJob job) {
    if (job.k % 2 && job.middle == 1 && (job.a == 1 || job.b == 1)) // a plane that is a line
        job.k = (job.k == 1 ? job.a : job.b) == 1 ? 2 : 0;
    if (job.k != 2) return job;
    if (job.b == 1) {
        job.inner *= job.middle;
        job.middle = 1;
    }
    if (job.middle == 1) { // the plane lies in memory as one line, and is reversed as such
        job.b *= job.a;
        job.a = 1;
    }
    return job;
}

void copy(const TurnJob& job, const Cells& cells, const Pool& pool) {
    const std::int64_t total = elements(job) / job.inner;
    const Pieces pieces(total, std::max<std::int64_t>(1, 16 * page / cells.bytes()));
    each_unit(pieces.count, total * cells.bytes(), pool, [&](std::int64_t i) {
        const std::int64_t begin = pieces.begin(i) * cells.bytes();
        cells.copy(static_cast<const char*>(job.x) + begin, static_cast<char*>(job.y) + begin, pieces.size(i));
    });
}

void half_turn(const TurnJob& job, const Cells& cells, const Pool& pool) {
    const std::int64_t bytes = cells.bytes(), total_bytes = elements(job) / job.inner * bytes;
    const bool stream = total_bytes >= stream_bytes && job.b * bytes >= page;
    const Pieces pieces(job.b, std::max<std::int64_t>(1, 16 * page / bytes));
    each_unit(job.outer * job.a * job.middle * pieces.count, total_bytes, pool, [&](std::int64_t unit) {
        const std::int64_t piece = unit % pieces.count, row = unit / pieces.count;
        const std::int64_t m = row % job.middle, i = row / job.middle % job.a, o = row / job.middle / job.a;
        const std::int64_t mirrored = (o * job.a + job.a - 1 - i) * job.middle + m;
        const std::int64_t begin = pieces.begin(piece), size = pieces.size(piece);
        cells.reverse(static_cast<const char*>(job.x) + (mirrored * job.b + job.b - begin - size) * bytes,
                      static_cast<char*>(job.y) + (row * job.b + begin) * bytes, size, stream);
    });
}

// A quarter turn is a transposition that walks x (k = 3) or y (k = 1) from the last row to the first.
void quarter_turn(const TurnJob& job, const Cells& cells, const Pool& pool) {
    const std::int64_t bytes = cells.bytes(), total_bytes = elements(job) / job.inner * bytes;
    const std::int64_t x_pitch = job.middle * job.b * bytes, y_pitch = job.middle * job.a * bytes;
    const bool stream = total_bytes >= stream_bytes && reinterpret_cast<std::uintptr_t>(job.y) % line == 0 &&
                        job.a * bytes % line == 0 && job.a * job.b * bytes >= page;
    // Units write runs of a few cache lines: more would ask for more rows of x than caches keep apart, where their
    // pitch is a power of two. Runs that begin inside a line share it with their neighbours, and should be longer.
    const std::int64_t lines = bytes == 1 || y_pitch % line != 0 ? 8 : 4;
    const Pieces rows(job.a, std::max<std::int64_t>(1, lines * line / bytes));
    const Pieces columns(job.b, std::max<std::int64_t>(1, 64 * page / (rows.step * bytes)));
    each_unit(job.outer * job.middle * rows.count * columns.count, total_bytes, pool, [&](std::int64_t unit) {
        const std::int64_t row = unit % rows.count, column = unit / rows.count % columns.count;
        const std::int64_t plane = unit / columns.count / rows.count;
        const std::int64_t o = plane / job.middle, m = plane % job.middle;
        const char* x = static_cast<const char*>(job.x) + o * job.a * x_pitch + m * job.b * bytes;
        char* y = static_cast<char*>(job.y) + o * job.b * y_pitch + m * job.a * bytes;
        const std::int64_t left = columns.begin(column), width = columns.size(column);
        const std::int64_t top = rows.begin(row), height = rows.size(row);
        if (job.k == 1) {
            cells.transpose({x + top * x_pitch + left * bytes, x_pitch,
                             y + (job.b - 1 - left) * y_pitch + top * bytes, -y_pitch, height, width}, stream);
        } else {
            cells.transpose({x + (job.a - 1 - top) * x_pitch + left * bytes, -x_pitch,
                             y + left * y_pitch + top * bytes, y_pitch, height, width}, stream);
        }
    });
}

void turn(const TurnJob& job, const Cells& cells, const Pool& pool) {
    if (job.k == 0)
        copy(job, cells, pool);
    else if (job.k == 2)
        half_turn(job, cells, pool);
    else
        quarter_turn(job, cells, pool);
}

} // namespace

void rotate(const TurnJob& job, std::size_t element_bytes, const Pool& pool) {
    if (elements(job) == 0) return;
    const TurnJob simple = simplified(job);
    turn(simple, Cells(simple.inner * static_cast<std::int64_t>(element_bytes)), pool);
}

void rotate_scaled(const TurnJob& job, DType dtype, float scale, const Pool& pool) {
    if (elements(job) == 0) return;
    const TurnJob simple = simplified(job);
    turn(simple, Cells(simple.inner, dtype, scale), pool);
}

} // namespace warpfuse
