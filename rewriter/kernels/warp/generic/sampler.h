#pragma once

#include "core/half.h"
#include "warp/generic/least.h"
#include "warp/generic/taps.h"
#include "warp/theta.h"

namespace warpfuse {
namespace {

// AffineGridSample of every type, rank, mode and padding. A run of pixels of a row is worked in two phases: its taps to
// the stack, then loops over channels that only load and weigh.
template <class T, int Axes, int Taps>
class Sampler {
public:
    using Real = RealOf<T>;

    explicit Sampler(const SampleJob& job)
        : job_(job), in_plane_(job.in.d * job.in.h * job.in.w), out_plane_(job.out.d * job.out.h * job.out.w) {}

    // Pixels first .. first + count - 1 of a row of batch entry n, in channels c0 .. c1 - 1.
    void run(const PixelMap& map, std::int64_t n, std::int64_t row, std::int64_t first, int count, std::int64_t c0,
             std::int64_t c1) {
        const T* x = static_cast<const T*>(job_.x) + n * job_.c * in_plane_;
        T* y = static_cast<T*>(job_.y) + n * job_.c * out_plane_ + row * job_.out.w + first;
        const bool empty = !place(map, row, first, count);
        for (std::int64_t c = c0; c < c1; ++c) {
            const T* plane = x + c * in_plane_;
            T* out = y + c * out_plane_;
            if (empty) {
                for (int k = 0; k < count; ++k) out[k] = T{};
                continue;
            }
            blend<true>(plane, 0, inside_from_, out);
            blend<false>(plane, inside_from_, inside_to_, out);
            blend<true>(plane, inside_to_, count, out);
        }
    }

private:
    // Fills the taps; false if all of them read zero.
    bool place(const PixelMap& map, std::int64_t row, std::int64_t first, int count) {
        const double lengths[3] = {double(job_.in.w), double(job_.in.h), double(job_.in.d)};
        const double strides[3] = {1, double(job_.in.w), double(job_.in.w) * double(job_.in.h)};
        const double h = double(row % job_.out.h) - map.c[1];
        const double d = double(row / job_.out.h) - map.c[2];
        for (int axis = 0; axis < Axes; ++axis) {
            const double* m = map.m[axis];
            const double at = (Axes == 3 ? m[2] * d : 0.0) + m[1] * h + map.t[axis];
            const Line line{m[0], double(first) - map.c[0], at, lengths[axis], strides[axis]};
            if (job_.padding == Padding::Zeros && misses(line, count)) return false;
            fill_taps(line, count, job_.padding, job_.align_corners, axis_[axis]);
        }
        // Coordinates are monotonic along the run, in floating point too: between two pixels that have all their taps
        // inside lie only such pixels.
        inside_from_ = 0;
        inside_to_ = count;
        while (inside_from_ < count && !inside(inside_from_)) ++inside_from_;
        while (inside_to_ > inside_from_ && !inside(inside_to_ - 1)) --inside_to_;
        return true;
    }

    // Both ends, and so the whole run, out of reach on the same side.
    static bool misses(const Line& line, int count) {
        const double reach = Taps / 2 + 0.5;
        const double a = line.step * line.start + line.at;
        const double b = line.step * (line.start + (count - 1)) + line.at;
        return (a < -reach && b < -reach) || (a > line.length - 1 + reach && b > line.length - 1 + reach);
    }

    bool inside(int k) const {
        std::int64_t sign = 0;
        for (int axis = 0; axis < Axes; ++axis) sign |= axis_[axis].offset[0][k] | axis_[axis].offset[Taps - 1][k];
        return sign >= 0;
    }

    template <bool Checked>
    void blend(const T* __restrict plane, int from, int to, T* __restrict out) const {
        if constexpr (Taps == 1) {
            for (int k = from; k < to; ++k) out[k] = load<Checked>(plane, offset(k, 0, 0));
        } else if constexpr (sizeof(T) == sizeof(Real)) {
            for (int k = from; k < to; ++k) {
                Real sum = 0;
                for (int row = 0; row < kRows; ++row) {
                    Real part = 0;
                    for (int tap = 0; tap < Taps; ++tap)
                        part += axis_[0].weight[tap][k] * load<Checked>(plane, offset(k, row, tap));
                    sum += weight(k, row) * part;
                }
                out[k] = sum;
            }
        } else { // all loads of a tap first: the rest, with the change of types, is vectorised
            Real sums[kRun];
            for (int k = from; k < to; ++k) sums[k] = 0;
            for (int row = 0; row < kRows; ++row) {
                Real parts[kRun];
                for (int k = from; k < to; ++k) parts[k] = 0;
                for (int tap = 0; tap < Taps; ++tap) {
                    T loaded[kRun];
                    for (int k = from; k < to; ++k) loaded[k] = load<Checked>(plane, offset(k, row, tap));
                    for (int k = from; k < to; ++k) parts[k] += axis_[0].weight[tap][k] * widen(loaded[k]);
                }
                for (int k = from; k < to; ++k) sums[k] += weight(k, row) * parts[k];
            }
            for (int k = from; k < to; ++k) out[k] = narrow(sums[k], T{});
        }
    }

    // Taps come in rows: one tap on each axis but the first.
    static constexpr int kRows = Axes == 3 ? Taps * Taps : Taps;

    std::int64_t offset(int k, int row, int tap) const {
        const std::int64_t flat = axis_[1].offset[row % Taps][k] + axis_[0].offset[tap][k];
        if constexpr (Axes == 3) return axis_[2].offset[row / Taps][k] + flat;
        return flat;
    }

    Real weight(int k, int row) const {
        const Real flat = axis_[1].weight[row % Taps][k];
        if constexpr (Axes == 3) return axis_[2].weight[row / Taps][k] * flat;
        return flat;
    }

    template <bool Checked>
    static T load(const T* plane, std::int64_t offset) {
        return Checked && offset < 0 ? T{} : plane[offset];
    }

    const SampleJob& job_;
    const std::int64_t in_plane_, out_plane_;
    AxisTaps<Real, Taps> axis_[Axes];
    int inside_from_ = 0, inside_to_ = 0;
};

template <class T, int Axes, int Taps>
void sample_in_tasks(const SampleJob& job, const Pool& pool) {
    const std::int64_t runs = (job.out.w + kRun - 1) / kRun; // of a row
    const std::int64_t rows = job.out.d * job.out.h;
    const std::int64_t pieces = job.n * rows * runs;
    if (pieces * job.c == 0) return;

    // Nanoseconds, roughly: what is below one task's worth stays on the calling thread.
    constexpr double kTask = 100e3;
    constexpr double kTaps = Axes == 3 ? Taps * Taps * Taps : Taps * Taps;
    const double piece_cost = 50 + double(least(job.out.w, kRun)) * (4 + double(job.c) * (0.5 + 0.5 * kTaps));
    const std::int64_t together = most(1, std::int64_t(kTask / piece_cost));
    const std::int64_t tasks = (pieces + together - 1) / together;
    // Groups of channels, where one run of all of them is too much.
    const std::int64_t groups = most(1, least(std::int64_t(piece_cost / kTask), job.c / 8));

    pool.each(static_cast<std::size_t>(tasks * groups), [&](std::size_t task) {
        const std::int64_t group = std::int64_t(task) % groups;
        const std::int64_t begin = std::int64_t(task) / groups * together;
        const std::int64_t end = least(pieces, begin + together);
        Sampler<T, Axes, Taps> sampler(job);
        PixelMap map;
        std::int64_t mapped = -1;
        for (std::int64_t piece = begin; piece < end; ++piece) {
            const std::int64_t n = piece / (rows * runs);
            if (n != mapped) map = pixel_map(job, mapped = n);
            const std::int64_t run = piece % runs;
            const std::int64_t first = job.out.w * run / runs;
            const int count = int(job.out.w * (run + 1) / runs - first);
            sampler.run(map, n, piece / runs % rows, first, count, job.c * group / groups,
                        job.c * (group + 1) / groups);
        }
    });
}

template <class T>
void sample_as(const SampleJob& job, const Pool& pool) {
    const bool flat = job.axes == 2;
    switch (job.mode) {
    case Mode::Nearest: return flat ? sample_in_tasks<T, 2, 1>(job, pool) : sample_in_tasks<T, 3, 1>(job, pool);
    case Mode::Linear: return flat ? sample_in_tasks<T, 2, 2>(job, pool) : sample_in_tasks<T, 3, 2>(job, pool);
    case Mode::Cubic: return sample_in_tasks<T, 2, 4>(job, pool);
    }
}

void sample(const SampleJob& job, const Pool& pool) {
    switch (job.dtype) {
    case DType::Float32: return sample_as<float>(job, pool);
    case DType::Float16: return sample_as<Float16>(job, pool);
    case DType::BFloat16: return sample_as<BFloat16>(job, pool);
    case DType::Float64: return sample_as<double>(job, pool);
    }
}

} // namespace
} // namespace warpfuse
