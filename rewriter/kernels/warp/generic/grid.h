#pragma once

#include <cstring>
#include <utility>

#include "core/half.h"
#include "warp/generic/least.h"
#include "warp/theta.h"

namespace warpfuse {
namespace {

#ifdef __AVX__
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// AffineGrid of every type and rank: base + slope * x along each row, whose x coordinates are computed once a task.
template <class T, int Axes>
class GridWriter {
public:
    using Real = RealOf<T>;
    static constexpr std::int64_t kColumns = 32768 / (Axes * sizeof(Real)); // at most, of a row, in one task

    GridWriter(const GridJob& job, std::int64_t first, std::int64_t columns)
        : job_(job), first_(first), values_(columns * Axes) {
        for (std::int64_t i = 0; i < columns; ++i) {
            const Real x = Real(coordinate(first + i, job.out.w));
            for (int c = 0; c < Axes; ++c) xs_[i * Axes + c] = x;
        }
    }

    // Rows begin .. end - 1, counted through the whole batch.
    void rows(std::int64_t begin, std::int64_t end) {
        const Extent out = job_.out;
        std::int64_t h = begin % out.h, d = begin / out.h % out.d, n = begin / (out.h * out.d);
        Plane plane(*this, n, d);
        T* grid = static_cast<T*>(job_.grid) + first_ * Axes;
        for (std::int64_t row = begin; row < end; ++row) {
            write(plane, coordinate(h, out.h), grid + row * out.w * Axes);
            if (++h < out.h) continue;
            h = 0;
            if (++d == out.d) {
                d = 0;
                ++n;
            }
            if (row + 1 < end) plane = Plane(*this, n, d);
        }
    }

private:
    typedef Real Vector __attribute__((vector_size(kVectorBytes)));
    static constexpr int kVector = kVectorBytes / int(sizeof(Real));
    static constexpr int kLanes = Axes * kVector;       // whole vectors of whole pixels
    static constexpr std::int64_t kBlock = 16 * kLanes; // rounded at once

    // theta of one plane of the output: what is left is x and y.
    struct Plane {
        Plane(const GridWriter& writer, std::int64_t n, std::int64_t d) {
            const GridJob& job = writer.job_;
            double theta[12];
            read_theta(job.theta, job.dtype, job.theta_batch, Axes, n, theta);
            for (int c = 0; c < Axes; ++c) {
                const double* m = theta + c * (Axes + 1);
                slope[c] = Real(m[0]);
                y[c] = m[1];
                rest[c] = (Axes == 3 ? m[2] * writer.coordinate(d, job.out.d) : 0.0) + m[Axes];
            }
        }
        Real slope[Axes];
        double y[Axes], rest[Axes];
    };

    double coordinate(std::int64_t i, std::int64_t n) const {
        return double(2 * i + 1 - n) / double(most(n - (job_.align_corners ? 1 : 0), 1));
    }

    void write(const Plane& plane, double y, T* __restrict out) const {
        Real base[Axes];
        for (int c = 0; c < Axes; ++c) base[c] = Real(plane.y[c] * y + plane.rest[c]);
        if constexpr (sizeof(T) == sizeof(Real)) {
            affine(plane.slope, base, xs_, values_, out);
        } else {
            for (std::int64_t first = 0; first < values_; first += kBlock) {
                const std::int64_t count = least(kBlock, values_ - first);
                Real block[kBlock];
                affine(plane.slope, base, xs_ + first, count, block);
                for (std::int64_t i = 0; i < count; ++i) out[first + i] = narrow(block[i], T{});
            }
        }
    }

    // The value of each lane's coordinate. In registers: a vector load of what was just stored one by one would wait for
    // every store before it.
    template <int... lane>
    static void spread(const Real* values, Vector (&vectors)[Axes], std::integer_sequence<int, lane...>) {
        vectors[0] = Vector{values[lane % Axes]...};
        vectors[1] = Vector{values[(kVector + lane) % Axes]...};
        if constexpr (Axes == 3) vectors[2] = Vector{values[(2 * kVector + lane) % Axes]...};
    }

    // Slopes and bases stay in registers, and stores are whole vectors that need no shuffling.
    static void affine(const Real* slope, const Real* base, const Real* xs, std::int64_t count, Real* __restrict out) {
        Vector slopes[Axes], bases[Axes];
        spread(slope, slopes, std::make_integer_sequence<int, kVector>());
        spread(base, bases, std::make_integer_sequence<int, kVector>());
        std::int64_t i = 0;
        for (; i + kLanes <= count; i += kLanes)
            for (int v = 0; v < Axes; ++v) {
                Vector values;
                std::memcpy(&values, xs + i + v * kVector, kVectorBytes);
                values = slopes[v] * values + bases[v];
                std::memcpy(out + i + v * kVector, &values, kVectorBytes);
            }
        for (int lane = 0; i < count; ++i, ++lane) out[i] = slope[lane % Axes] * xs[i] + base[lane % Axes];
    }

    const GridJob& job_;
    const std::int64_t first_, values_;
    alignas(64) Real xs_[kColumns * Axes]; // each x for every value of its pixel
};

template <class T, int Axes>
void grid_in_tasks(const GridJob& job, const Pool& pool) {
    constexpr std::int64_t kTaskBytes = 1 << 19; // some 50 microseconds of memory's time
    constexpr std::int64_t kColumns = GridWriter<T, Axes>::kColumns;
    const std::int64_t w = job.out.w, rows = job.n * job.out.d * job.out.h;
    const std::int64_t blocks = (w + kColumns - 1) / kColumns; // of columns
    const std::int64_t together = most(1, kTaskBytes / (least(w, kColumns) * Axes * std::int64_t(sizeof(T))));
    const std::int64_t tasks = (rows + together - 1) / together;
    pool.each(static_cast<std::size_t>(tasks * blocks), [&](std::size_t task) {
        const std::int64_t block = std::int64_t(task) % blocks;
        const std::int64_t first = w * block / blocks;
        const std::int64_t begin = std::int64_t(task) / blocks * together;
        GridWriter<T, Axes>(job, first, w * (block + 1) / blocks - first).rows(begin, least(rows, begin + together));
    });
}

template <class T>
void grid_as(const GridJob& job, const Pool& pool) {
    job.axes == 2 ? grid_in_tasks<T, 2>(job, pool) : grid_in_tasks<T, 3>(job, pool);
}

void grid(const GridJob& job, const Pool& pool) {
    switch (job.dtype) {
    case DType::Float32: return grid_as<float>(job, pool);
    case DType::Float16: return grid_as<Float16>(job, pool);
    case DType::BFloat16: return grid_as<BFloat16>(job, pool);
    case DType::Float64: return grid_as<double>(job, pool);
    }
}

} // namespace
} // namespace warpfuse
