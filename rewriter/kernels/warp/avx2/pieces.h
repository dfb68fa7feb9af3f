#pragma once

#include "warp/avx2/work.h"

namespace warpfuse {
namespace {

constexpr std::int64_t kPieceElements = 65536; // of y: some 50 microseconds
constexpr std::int64_t kPieceWidth = 256;      // where rows are longer

// The pieces of a job that are done as tasks of their own: near squares of y, so that what they read of x stays in the
// cache from tile to tile, in as many channels as make a task worth its start.
struct Piece {
    std::int64_t n, c, channels;
    Tile part;
};

struct Cut {
    std::int64_t w, h, channels, across, down, deep, n;

    explicit Cut(const SampleJob& job) : n(job.n) {
        w = job.out.w <= kPieceWidth * 3 / 2 ? job.out.w : kPieceWidth;
        const std::int64_t fit = smaller(kPieceElements / (w * smaller(job.c, std::int64_t(8))), w);
        h = smaller(larger(fit / kMaxRows, std::int64_t(1)) * kMaxRows, job.out.h);
        channels = smaller(job.c, larger(std::int64_t(16), kPieceElements / (w * h) / 8 * 8));
        across = (job.out.w + w - 1) / w;
        down = (job.out.h + h - 1) / h;
        deep = (job.c + channels - 1) / channels;
    }

    std::size_t tasks() const { return std::size_t(n * deep * down * across); }

    Piece piece(const SampleJob& job, std::size_t task) const {
        std::int64_t rest = std::int64_t(task);
        const std::int64_t i = rest % across * w;
        rest /= across;
        const std::int64_t j = rest % down * h;
        rest /= down;
        const std::int64_t c = rest % deep * channels;
        return {rest / deep, c, smaller(channels, job.c - c),
                {i, j, int(smaller(w, job.out.w - i)), int(smaller(h, job.out.h - j))}};
    }
};

} // namespace
} // namespace warpfuse
