// What the kernel computes, written out as loops over patches and pixels in double precision, with no thought of time.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using Numbers = std::vector<double>;

// A batch of images on a grid, as Problem of kernel.cpp has it; images of (height, width) pixels lie on it from
// (top, left) on, and pixels around them are 0.
struct Grid {
    int64_t batch, rows, cols, cell, patch, window;
    bool clip;
    int64_t height, width, top, left;

    int64_t queries_down() const { return rows - patch + 1; }
    int64_t queries_across() const { return cols - patch + 1; }
    int64_t queries() const { return queries_down() * queries_across(); }
    int64_t slots() const { return window * window; }
    int64_t pixels() const { return height * width; }

    // First patch of query q's window along an axis.
    int64_t start(int64_t q, int64_t queries) const {
        int64_t a = q - window / 2, last = queries > window ? queries - window : 0;
        return clip ? a : a < 0 ? 0 : a > last ? last : a;
    }
    double pixel(const Numbers &images, int64_t channels, int64_t b, int64_t c, int64_t y, int64_t x) const {
        y -= top, x -= left;
        if (y < 0 || y >= height || x < 0 || x >= width) return 0;
        return images[((b * channels + c) * height + y) * width + x];
    }
    // Calls f(batch, query row, query column, number of the query, slot, patch row, patch column) for slots that lie
    // inside the image.
    template <class F> void each_slot(F f) const {
        for (int64_t b = 0; b < batch; ++b)
            for (int64_t qy = 0; qy < queries_down(); ++qy)
                for (int64_t qx = 0; qx < queries_across(); ++qx)
                    for (int64_t i = 0; i < slots(); ++i) {
                        int64_t py = start(qy, queries_down()) + i / window, px = start(qx, queries_across()) + i % window;
                        if (py < 0 || py >= queries_down() || px < 0 || px >= queries_across()) continue;
                        f(b, qy, qx, (b * queries_down() + qy) * queries_across() + qx, i, py, px);
                    }
    }
};

// Squared distances of patches, 0 where a slot lies outside: images [B][C][H][W] -> [B][Qh][Qw][M].
inline Numbers literal_distances(const Grid &g, const Numbers &images, int64_t channels) {
    Numbers d(g.batch * g.queries() * g.slots());
    int64_t side = g.patch * g.cell;
    g.each_slot([&](int64_t b, int64_t qy, int64_t qx, int64_t q, int64_t slot, int64_t py, int64_t px) {
        for (int64_t c = 0; c < channels; ++c)
            for (int64_t y = 0; y < side; ++y)
                for (int64_t x = 0; x < side; ++x) {
                    double here = g.pixel(images, channels, b, c, qy * g.cell + y, qx * g.cell + x);
                    double there = g.pixel(images, channels, b, c, py * g.cell + y, px * g.cell + x);
                    d[q * g.slots() + slot] += (here - there) * (here - there);
                }
    });
    return d;
}

// Eqs. 8-10: w = softmax(z), z <- z + c log(1 - w), where 1 - w is the sum of the other weights; [M] -> [k][M].
inline Numbers literal_selection(Numbers z, double c, int64_t k, bool hard = false) {
    const double none = -std::numeric_limits<double>::infinity();
    int64_t slots = z.size();
    Numbers weights(k * slots);
    for (int64_t j = 0; j < k; ++j) {
        int64_t best = 0;
        for (int64_t i = 1; i < slots; ++i) best = z[i] > z[best] ? i : best;
        if (hard) {
            weights[j * slots + best] = 1;
            z[best] = none;
            continue;
        }
        double top = z[best], total = 0;
        for (int64_t i = 0; i < slots; ++i) total += std::exp(z[i] - top);
        Numbers next(slots, none);
        for (int64_t i = 0; i < slots; ++i) {
            double others = 0;
            for (int64_t n = 0; n < slots; ++n) others += n == i ? 0 : std::exp(z[n] - top);
            weights[j * slots + i] = std::exp(z[i] - top) / total;
            if (z[i] > none) next[i] = z[i] + c * std::log(others / total);
        }
        z = next;
    }
    return weights;
}

// Each query's k neighbours, weighted sums of whole patches, averaged where patches overlap:
// z [B][Qh][Qw][M], c [B][Qh][Qw], images [B][C][H][W] -> [B][k][C][H][W].
inline Numbers literal_aggregation(const Grid &g, const Numbers &z, const Numbers &c, const Numbers &images,
                                   int64_t channels, int64_t k, bool hard) {
    Numbers logits(z.size(), -std::numeric_limits<double>::infinity()), weights(z.size() * k);
    g.each_slot([&](int64_t, int64_t qy, int64_t qx, int64_t q, int64_t slot, int64_t py, int64_t px) {
        if (py != qy || px != qx) logits[q * g.slots() + slot] = z[q * g.slots() + slot];
    });
    for (int64_t q = 0; q < g.batch * g.queries(); ++q) {
        auto from = logits.begin() + q * g.slots();
        Numbers w = literal_selection(Numbers(from, from + g.slots()), c[q], k, hard);
        std::copy(w.begin(), w.end(), weights.begin() + q * k * g.slots());
    }
    Numbers sums(g.batch * k * channels * g.pixels());
    int64_t side = g.patch * g.cell;
    g.each_slot([&](int64_t b, int64_t qy, int64_t qx, int64_t q, int64_t slot, int64_t py, int64_t px) {
        for (int64_t y = 0; y < side; ++y)
            for (int64_t x = 0; x < side; ++x) {
                int64_t row = qy * g.cell + y - g.top, col = qx * g.cell + x - g.left;
                if (row < 0 || row >= g.height || col < 0 || col >= g.width) continue;
                for (int64_t j = 0; j < k; ++j)
                    for (int64_t ch = 0; ch < channels; ++ch)
                        sums[((b * k + j) * channels + ch) * g.pixels() + row * g.width + col] +=
                            weights[(q * k + j) * g.slots() + slot] *
                            g.pixel(images, channels, b, ch, py * g.cell + y, px * g.cell + x);
            }
    });
    for (size_t i = 0; i < sums.size(); ++i) {
        int64_t row = i / g.width % g.height + g.top, col = i % g.width + g.left, patches = 0;
        for (int64_t qy = 0; qy < g.queries_down(); ++qy)
            for (int64_t qx = 0; qx < g.queries_across(); ++qx)
                patches += row >= qy * g.cell && row < qy * g.cell + side && col >= qx * g.cell && col < qx * g.cell + side;
        sums[i] /= patches;
    }
    return sums;
}

// A convolution of 3 x 3 with zeros around the image, channels last: x [B][H][W][C], weight [K][C][3][3] -> [B][H][W][K].
inline Numbers literal_convolution(int64_t batch, int64_t height, int64_t width, int64_t from, int64_t to,
                                   const Numbers &x, const Numbers &weight) {
    Numbers out(batch * height * width * to);
    for (int64_t i = 0; i < batch * height * width; ++i)
        for (int64_t k = 0; k < to; ++k)
            for (int64_t c = 0; c < from; ++c)
                for (int64_t u = 0; u < 9; ++u) {
                    int64_t dy = u / 3 - 1, dx = u % 3 - 1, row = i / width % height + dy, col = i % width + dx;
                    if (row < 0 || row >= height || col < 0 || col >= width) continue;
                    out[i * to + k] += weight[(k * from + c) * 9 + u] * x[(i + dy * width + dx) * from + c];
                }
    return out;
}
