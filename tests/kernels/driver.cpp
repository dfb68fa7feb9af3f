// Random calls of the compute code, for sanitizers: values are adversarial, arrays end where malloc's do, outputs lie
// between guard bytes. Each result is compared with the reference's, so the vector paths are held to the portable one.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "core/half.h"
#include "reference.h"
#include "turn/turn.h"
#include "warp/paths.h"

using namespace warpfuse;

namespace {

std::mt19937_64 random_bits;

std::int64_t below(std::int64_t n) { return std::int64_t(random_bits() % std::uint64_t(n)); }
double uniform(double lo, double hi) { return lo + (hi - lo) * double(random_bits() >> 11) * 0x1p-53; }

template <class T, std::size_t n>
T one_of(const T (&values)[n]) {
    return values[below(n)];
}

// Exactly the bytes asked for, so that AddressSanitizer sees the first one beyond.
struct Bytes {
    explicit Bytes(std::size_t count) : data(static_cast<unsigned char*>(std::malloc(count ? count : 1))) {}
    ~Bytes() { std::free(data); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    unsigned char* data;
};

// An output between guards. It may start at any multiple of its elements' size.
struct Output {
    static constexpr std::size_t kGuard = 64;
    Output(std::size_t count, std::size_t element)
        : bytes(count), shift(element * std::size_t(below(4))), memory(count + 2 * kGuard + shift) {
        std::memset(memory.data, 0xA5, count + 2 * kGuard + shift);
    }
    void* data() { return memory.data + kGuard + shift; }
    bool guarded() const {
        for (std::size_t i = 0; i < bytes + 2 * kGuard + shift; ++i)
            if ((i < kGuard + shift || i >= kGuard + shift + bytes) && memory.data[i] != 0xA5) return false;
        return true;
    }
    std::size_t bytes, shift;
    Bytes memory;
};

void fail(const char* what, std::int64_t call) {
    std::fprintf(stderr, "call %lld: %s\n", static_cast<long long>(call), what);
    std::exit(1);
}

// Tasks in reverse: none may depend on the one before.
const Pool reversed([](void*, Pool::Task task, std::size_t count, void* data) {
    while (count > 0) task(data, --count);
}, nullptr);

constexpr DType kTypes[] = {DType::Float32, DType::Float16, DType::BFloat16, DType::Float64};

std::int64_t some_length(int axes) {
    static constexpr std::int64_t plane[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 128, 130, 257};
    return axes == 2 ? one_of(plane) : plane[below(11)];
}

Extent some_extent(int axes) {
    Extent extent;
    if (axes == 3) extent.d = some_length(3);
    extent.h = some_length(axes);
    extent.w = axes == 2 && below(20) == 0 ? 1031 : some_length(axes);
    while (extent.h * extent.w > 20000) extent.h = (extent.h + 1) / 2;
    return extent;
}

// Transforms that mostly see the image, and some that hold anything.
void fill_theta(void* theta, DType dtype, std::int64_t batch, int axes) {
    static const double wild[] = {0, -0.0, 1, -1, 0.5, 2, 1e30, -1e30, 3e38, 1e-30, 1e-45, 1e300, 65504, 7.5e4, 2e9,
                                  std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN()};
    const std::int64_t kind = below(6);
    const double noise = kind == 0 ? 0 : one_of({0.01, 0.2, 1.0, 5.0, 100.0});
    for (std::int64_t i = 0; i < batch * axes * (axes + 1); ++i) {
        const std::int64_t row = i / (axes + 1) % axes, column = i % (axes + 1);
        double value = (row == column ? 1 : 0) + noise * uniform(-1, 1);
        if (kind == 1 && row != column && column < axes) value = 0; // scales and moves only
        if (kind == 2) value = one_of({0.0, 1.0, -1.0, 0.5, 2.0});
        if (kind == 3 && below(3) == 0) value = one_of(wild);
        reference::put(theta, dtype, i, value);
    }
}

void fill_image(void* x, DType dtype, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) reference::put(x, dtype, i, uniform(-1, 1));
}

double rounding(DType dtype) {
    if (dtype == DType::Float16) return 0x1p-11;
    if (dtype == DType::BFloat16) return 0x1p-8;
    return dtype == DType::Float32 ? 1e-6 : 1e-13;
}

void check_grid(const GridJob& job, const void* grid, std::int64_t call) {
    const std::int64_t pixels = job.out.d * job.out.h * job.out.w;
    for (int probe = 0; probe < 64 && job.n > 0; ++probe) {
        const std::int64_t n = below(job.n), pixel = below(pixels);
        const int c = int(below(job.axes));
        const auto wanted = reference::grid(job.theta, job.dtype, job.theta_batch, job.axes, job.align_corners, job.out,
                                            n, pixel % job.out.w, pixel / job.out.w % job.out.h,
                                            pixel / job.out.w / job.out.h, c);
        const double got = reference::element(grid, job.dtype, (n * pixels + pixel) * job.axes + c);
        if (!std::isfinite(wanted.value)) {
            if (std::isfinite(got)) fail("AffineGrid is finite where theta is not", call);
        } else if (wanted.size < (job.dtype == DType::Float16 ? 6e4 : 1e38)) {
            const double allowed = rounding(job.dtype) * wanted.size + 0x1p-24 * (job.dtype == DType::Float16);
            if (!(std::fabs(got - wanted.value) <= allowed + 1e-40)) fail("AffineGrid", call);
        }
    }
}

void grid_call(std::int64_t call) {
    GridJob job{};
    job.dtype = one_of(kTypes);
    job.axes = 2 + int(below(2));
    job.align_corners = below(2);
    job.n = below(4);
    job.theta_batch = below(2) ? job.n : 1;
    job.out = below(30) == 0 ? Extent{1, 2, 5000} : some_extent(job.axes);
    const std::size_t element = bytes_of(job.dtype);
    Bytes theta(std::size_t(job.theta_batch * job.axes * (job.axes + 1)) * element);
    fill_theta(theta.data, job.dtype, job.theta_batch, job.axes);
    job.theta = theta.data;
    const std::size_t bytes = std::size_t(job.n * job.out.d * job.out.h * job.out.w * job.axes) * element;
    Output grid(bytes, element), portable(bytes, element);
    job.grid = grid.data();
    affine_grid(job, below(2) ? Pool() : reversed);
    if (!grid.guarded()) fail("AffineGrid wrote outside its output", call);
    check_grid(job, grid.data(), call);
    job.grid = portable.data();
    grid_portable(job, Pool());
    if (!portable.guarded()) fail("AffineGrid, portable, wrote outside its output", call);
    check_grid(job, portable.data(), call);
}

// blur: what coordinates may be wrong by, in parts of what they are summed from, and in pixels.
void check_sample(const SampleJob& job, const void* y, double blur, double blur_pixels, const char* what,
                  std::int64_t call) {
    const std::int64_t in = job.in.d * job.in.h * job.in.w, pixels = job.out.d * job.out.h * job.out.w;
    const std::int64_t lengths[3] = {job.in.w, job.in.h, job.in.d};
    for (int probe = 0; probe < 64 && job.n * job.c > 0; ++probe) {
        const std::int64_t n = below(job.n), c = below(job.c), pixel = below(pixels);
        std::vector<reference::Tap> taps[3] = {{}, {}, {{0, 1}}};
        double doubt = 0;
        bool comparable = true;
        for (int axis = 0; axis < job.axes; ++axis) {
            const auto grid = reference::grid(job.theta, job.theta_dtype, job.theta_batch, job.axes,
                                              job.grid_align_corners, job.out, n, pixel % job.out.w,
                                              pixel / job.out.w % job.out.h, pixel / job.out.w / job.out.h, axis);
            const double length = double(lengths[axis]), scale = (length - (job.align_corners ? 1 : 0)) / 2;
            const double p = grid.value * scale + (length - 1) / 2;
            const double wrong = blur * (grid.size * scale + length) + blur_pixels;
            const double fraction = p - std::floor(p);
            comparable = comparable && wrong < 0.01 && // false for NaN
                         (job.mode != Mode::Nearest || std::fabs(fraction - 0.5) > 2 * wrong);
            if (!comparable) break;
            doubt += wrong;
            taps[axis] = reference::taps(p, lengths[axis], job.mode, job.padding, job.align_corners);
        }
        if (!comparable) continue;
        double wanted = 0;
        for (const auto& z : taps[2])
            for (const auto& v : taps[1])
                for (const auto& u : taps[0]) {
                    const std::int64_t at = (z.index * job.in.h + v.index) * job.in.w + u.index;
                    const double value = reference::element(job.x, job.dtype, (n * job.c + c) * in + at);
                    wanted += z.weight * v.weight * u.weight * value;
                }
        const double got = reference::element(y, job.dtype, (n * job.c + c) * pixels + pixel);
        const double allowed = (job.mode == Mode::Nearest ? 0 : 8 * doubt) + 2 * rounding(job.dtype);
        if (!(std::fabs(got - wanted) <= allowed)) {
            std::fprintf(stderr, "mode %d padding %d axes %d dtype %d: %.9g, not %.9g (allowed %.2g)\n", int(job.mode),
                         int(job.padding), job.axes, int(job.dtype), got, wanted, allowed);
            fail(what, call);
        }
    }
}

void sample_call(std::int64_t call) {
    SampleJob job{};
    job.dtype = below(2) ? DType::Float32 : one_of(kTypes);
    job.axes = below(4) ? 2 : 3;
    job.mode = one_of({Mode::Nearest, Mode::Linear, Mode::Linear, Mode::Cubic});
    if (job.axes == 3 && job.mode == Mode::Cubic) job.mode = Mode::Linear;
    job.padding = one_of({Padding::Zeros, Padding::Border, Padding::Reflection});
    job.align_corners = below(2);
    job.grid_align_corners = below(2);
    job.n = below(3);
    job.c = one_of({0, 1, 1, 2, 3, 3, 4, 8, 9, 17});
    job.theta_batch = below(2) ? job.n : 1;
    job.theta_dtype = below(2) ? job.dtype : DType::Float32;
    job.in = some_extent(job.axes);
    job.out = some_extent(job.axes);
    const std::size_t element = bytes_of(job.dtype);
    const std::int64_t count = job.n * job.c * job.in.d * job.in.h * job.in.w;
    Bytes x(std::size_t(count) * element);
    Bytes theta(std::size_t(job.theta_batch * job.axes * (job.axes + 1)) * bytes_of(job.theta_dtype));
    fill_image(x.data, job.dtype, count);
    fill_theta(theta.data, job.theta_dtype, job.theta_batch, job.axes);
    job.x = x.data;
    job.theta = theta.data;
    const std::size_t bytes = std::size_t(job.n * job.c * job.out.d * job.out.h * job.out.w) * element;
    Output y(bytes, element), portable(bytes, element);
    job.y = y.data();
    affine_grid_sample(job, below(2) ? Pool() : reversed);
    if (!y.guarded()) fail("AffineGridSample wrote outside its output", call);
    const bool fast = job.dtype == DType::Float32 && job.axes == 2; // coordinates partly in float32
    check_sample(job, y.data(), fast ? 2e-7 : 1e-15, fast ? 1e-5 : 0, "AffineGridSample", call);
    job.y = portable.data();
    sample_portable(job, Pool());
    if (!portable.guarded()) fail("AffineGridSample, portable, wrote outside its output", call);
    check_sample(job, portable.data(), 1e-15, 0, "AffineGridSample, portable", call);
}

// Where element (i, j) of the turned plane comes from: numpy.rot90.
std::int64_t turned_from(const TurnJob& job, std::int64_t o, std::int64_t i, std::int64_t m, std::int64_t j,
                         std::int64_t e) {
    std::int64_t p = i, q = j;
    if (job.k == 1) p = j, q = job.b - 1 - i;
    if (job.k == 2) p = job.a - 1 - i, q = job.b - 1 - j;
    if (job.k == 3) p = job.a - 1 - j, q = i;
    return (((o * job.a + p) * job.middle + m) * job.b + q) * job.inner + e;
}

void turn_call(std::int64_t call) {
    static constexpr std::int64_t lengths[] = {0, 1, 2, 3, 5, 7, 8, 9, 16, 31, 32, 33, 64, 65, 100, 129};
    TurnJob job{};
    job.outer = one_of({0, 1, 1, 2, 3});
    job.a = one_of(lengths);
    job.middle = one_of({1, 1, 2, 3});
    job.b = one_of(lengths);
    job.inner = one_of({0, 1, 1, 1, 2, 3, 4, 5});
    job.k = int(below(4));
    const bool scaled = below(2);
    const DType dtype = one_of(kTypes);
    const float scale = one_of({1.0f, 0.5f, -2.0f, 0.1f, 3e38f, 1e-40f, std::numeric_limits<float>::quiet_NaN()});
    const std::size_t element = scaled ? bytes_of(dtype) : one_of({1, 2, 4, 8, 16});
    const std::int64_t count = job.outer * job.a * job.middle * job.b * job.inner;
    Bytes x(std::size_t(count) * element);
    for (std::size_t i = 0; i < std::size_t(count) * element; ++i)
        x.data[i] = static_cast<unsigned char>(random_bits());
    Output y(std::size_t(count) * element, element);
    job.x = x.data;
    job.y = y.data();
    const Pool pool = below(2) ? Pool() : reversed;
    scaled ? rotate_scaled(job, dtype, scale, pool) : rotate(job, element, pool);
    if (!y.guarded()) fail("a turn wrote outside its output", call);

    Bytes factor(8);
    reference::put(factor.data, dtype, 0, double(scale));
    const double rounded = reference::element(factor.data, dtype, 0);
    const std::int64_t rows = job.k % 2 ? job.b : job.a, columns = job.k % 2 ? job.a : job.b;
    for (int probe = 0; probe < 200 && count > 0; ++probe) {
        const std::int64_t at = below(count);
        const std::int64_t e = at % job.inner, j = at / job.inner % columns, m = at / job.inner / columns % job.middle;
        const std::int64_t i = at / job.inner / columns / job.middle % rows;
        const std::int64_t from = turned_from(job, at / job.inner / columns / job.middle / rows, i, m, j, e);
        Bytes wanted(element);
        std::memcpy(wanted.data, x.data + std::size_t(from) * element, element);
        const unsigned char* got = static_cast<unsigned char*>(job.y) + std::size_t(at) * element;
        if (scaled) {
            const double value = reference::element(wanted.data, dtype, 0);
            reference::put(wanted.data, dtype, 0, value * rounded); // exact in double, where that is not the type
            if (std::isnan(reference::element(wanted.data, dtype, 0))) {
                if (!std::isnan(reference::element(job.y, dtype, at))) fail("a scaled turn lost a NaN", call);
                continue;
            }
        }
        if (std::memcmp(got, wanted.data, element) != 0) fail(scaled ? "a scaled turn" : "a turn", call);
    }
}

} // namespace

// driver [calls] [seed]
int main(int count, char** arguments) {
    const std::int64_t calls = count > 1 ? std::atoll(arguments[1]) : 100000;
    random_bits.seed(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1);
    for (std::int64_t call = 0; call < calls; ++call) {
        const std::int64_t kind = below(8);
        kind == 0 ? grid_call(call) : kind < 3 ? turn_call(call) : sample_call(call);
    }
    std::printf("%lld calls\n", static_cast<long long>(calls));
    return 0;
}
