// The kernel against literal loops, without Python: also for processors on which PyTorch does not run, or not here.
//
//     c++ -std=c++17 -O1 -pthread selftest.cpp -o selftest && ./selftest
//
// Every function is called through its C interface, with every instruction set that the processor has. Backward passes
// are compared with finite differences of the forward passes. One more function of the kernel is tested by one more
// function here, beside the others and in test_all.

#include <cstdio>
#include <cstring>
#include <functional>

// The kernel asks the processor for its instruction sets through this; those above `level` are kept from it.
int level = 2;
#define __builtin_cpu_supports(name) ((std::strncmp(name, "avx512", 6) ? 1 : 2) <= level && __builtin_cpu_supports(name))
#include "../../src/n3net/kernel/kernel.cpp"
#undef __builtin_cpu_supports

#include "literal.h"

// A function of the kernel for numbers T; it must not run out of memory.
#define KERNEL(name, ...) expect_zero(#name, choose<T>(n3_##name##_f32, n3_##name##_f64)(__VA_ARGS__))

template <class T, class F32, class F64> auto choose(F32 f32, F64 f64) {
    if constexpr (std::is_same_v<T, float>) return f32;
    else return f64;
}

// What the tests say.

int failures = 0;
char where[100] = "";

void expect_zero(const char *what, int code) {
    if (code == 0) return;
    ++failures;
    std::printf("FAILED  %s, %s: returned %d\n", where, what, code);
}

// Numbers agree, to a tolerance relative to the largest.
template <class A, class B> void expect_close(const char *what, const A &got, const B &expected, double tolerance) {
    double largest = 1e-30, worst = 0;
    for (size_t i = 0; i < expected.size() && got.size() == expected.size(); ++i) {
        double difference = std::abs(double(got[i]) - double(expected[i]));
        largest = std::max(largest, std::abs(double(expected[i])));
        worst = difference <= worst ? worst : difference;  // so that NaN is the worst
    }
    if (got.size() == expected.size() && worst <= tolerance * largest) return;
    ++failures;
    std::printf("FAILED  %s, %s: differs by %.2g, the largest number is %.2g, the tolerance %.0e of it\n", where, what,
                worst, largest, tolerance);
}
template <class T> constexpr double TOLERANCE = std::is_same_v<T, float> ? 2e-5 : 1e-12;

// Numbers in [-factor, factor) that float holds exactly, the same in every run.
Numbers random_numbers(int64_t count, double factor = 1) {
    static uint64_t state = 1;
    Numbers x(count);
    for (double &value : x) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = float(factor * (double(state >> 40) / (1 << 23) - 1));
    }
    return x;
}
template <class T> std::vector<T> as(const Numbers &x) { return std::vector<T>(x.begin(), x.end()); }

double inner_product(const Numbers &a, const Numbers &b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Whether `gradient` is that of f at x: for each entry, or in some directions where there are many.
void expect_gradient(const char *what, const std::function<double(const Numbers &)> &f, const Numbers &x,
                     const Numbers &gradient) {
    const double step = 1e-5;
    int64_t size = x.size(), count = size <= 200 ? size : 20;
    Numbers got, expected;
    for (int64_t i = 0; i < count; ++i) {
        Numbers direction = count == size ? Numbers(size) : random_numbers(size);
        if (count == size) direction[i] = 1;
        Numbers before = x, after = x;
        for (int64_t n = 0; n < size; ++n) before[n] -= step * direction[n], after[n] += step * direction[n];
        got.push_back(inner_product(gradient, direction));
        expected.push_back((f(after) - f(before)) / (2 * step));
    }
    expect_close(what, got, expected, 1e-6);
}

// Images on grids.

struct Case {
    Grid grid;
    int64_t embedding, channels, k;
    bool last;  // channels last
    bool hard = false, euclidean = false, differences = false;
    int64_t threads = 1;

    Problem problem() const {
        return {grid.batch, grid.rows, grid.cols, grid.cell, grid.patch,  grid.window, grid.clip,
                embedding,  channels,  k,         euclidean, differences, hard,        threads};
    }
    Image image(const void *data, int64_t count) const {
        int64_t h = grid.height, w = grid.width;
        if (last) return {const_cast<void *>(data), count * h * w, 1, w * count, count, h, w, grid.top, grid.left};
        return {const_cast<void *>(data), count * h * w, h * w, w, 1, h, w, grid.top, grid.left};
    }
    // One number for each query.
    Image of_queries(const void *data) const {
        const int64_t h = grid.queries_down(), w = grid.queries_across();
        return {const_cast<void *>(data), h * w, h * w, w, 1, h, w, 0, 0};
    }
    // Between [B][C][H][W] and the order in memory.
    template <class To, class From> std::vector<To> ordered(const std::vector<From> &x, int64_t count, bool back) const {
        std::vector<To> y(x.size());
        for (int64_t i = 0; i < int64_t(x.size()); ++i) {
            int64_t pixel = i % grid.pixels(), c = i / grid.pixels() % count, b = i / grid.pixels() / count;
            int64_t place = last ? (b * grid.pixels() + pixel) * count + c : i;
            y[back ? i : place] = To(x[back ? place : i]);
        }
        return y;
    }
    template <class T> std::vector<T> to_memory(const Numbers &x, int64_t count) const { return ordered<T>(x, count, false); }
    template <class T> Numbers from_memory(const std::vector<T> &x, int64_t count) const {
        return ordered<double>(x, count, true);
    }
    int64_t queries() const { return grid.batch * grid.queries(); }
    Numbers random_images(int64_t count) const { return random_numbers(grid.batch * count * grid.pixels()); }
};

template <class T> Numbers distances(const Case &c, const Numbers &images) {
    auto problem = c.problem();
    auto x = c.to_memory<T>(images, c.embedding);
    auto image = c.image(x.data(), c.embedding);
    std::vector<T> d(c.queries() * c.grid.slots(), T(-1));
    KERNEL(distances, &problem, &image, d.data());
    return as<double>(Numbers(d.begin(), d.end()));
}

template <class T> Numbers aggregate(const Case &c, const Numbers &logits, const Numbers &strength, const Numbers &images) {
    auto problem = c.problem();
    auto z = as<T>(logits), s = as<T>(strength), x = c.to_memory<T>(images, c.channels);
    std::vector<T> out(x.size() * c.k, T(-1));
    auto from = c.image(x.data(), c.channels), to = c.image(out.data(), c.k * c.channels);
    KERNEL(aggregate, &problem, z.data(), s.data(), &from, &to);
    return c.from_memory(out, c.k * c.channels);
}

template <class T> void test_distances(const Case &c) {
    auto images = c.random_images(c.embedding);
    auto d = distances<T>(c, images);
    expect_close("distances", d, literal_distances(c.grid, images, c.embedding), TOLERANCE<T>);

    auto problem = c.problem();
    auto g = random_numbers(d.size());
    auto gd = as<T>(g), x = c.to_memory<T>(images, c.embedding);
    std::vector<T> gx(x.size(), T(0));
    auto from = c.image(x.data(), c.embedding), to = c.image(gx.data(), c.embedding);
    KERNEL(distances_backward, &problem, &from, gd.data(), &to);
    auto gradient = c.from_memory(gx, c.embedding);
    if constexpr (std::is_same_v<T, double>)
        expect_gradient("distances_backward", [&](const Numbers &at) { return inner_product(g, distances<T>(c, at)); },
                        images, gradient);
    else {  // against double, which finite differences have judged
        std::vector<double> gx64(x.size(), 0.0), x64(x.begin(), x.end());
        auto from64 = c.image(x64.data(), c.embedding), to64 = c.image(gx64.data(), c.embedding);
        expect_zero("distances_backward", n3_distances_backward_f64(&problem, &from64, g.data(), &to64));
        expect_close("distances_backward", gradient, c.from_memory(gx64, c.embedding), TOLERANCE<T>);
    }
}

struct Gradients {
    Numbers logits, strength, images;
};
template <class T>
Gradients aggregate_backward(const Case &c, const Numbers &g, const Numbers &logits, const Numbers &strength,
                             const Numbers &images) {
    auto problem = c.problem();
    auto gout = c.to_memory<T>(g, c.k * c.channels), x = c.to_memory<T>(images, c.channels);
    auto z = as<T>(logits), s = as<T>(strength);
    std::vector<T> gz(z.size(), T(-1)), gs(s.size(), T(-1)), gx(x.size(), T(0));
    auto of_out = c.image(gout.data(), c.k * c.channels), of_x = c.image(x.data(), c.channels);
    auto of_gx = c.image(gx.data(), c.channels);
    KERNEL(aggregate_backward, &problem, &of_out, z.data(), s.data(), &of_x, gz.data(), gs.data(), &of_gx);
    return {Numbers(gz.begin(), gz.end()), Numbers(gs.begin(), gs.end()), c.from_memory(gx, c.channels)};
}

template <class T> void test_aggregate(const Case &c, double sharpness) {
    auto images = c.random_images(c.channels);
    auto z = random_numbers(c.queries() * c.grid.slots(), sharpness), s = random_numbers(c.queries());
    for (double &value : s) value = 1 + value / 2;
    auto out = aggregate<T>(c, z, s, images);
    expect_close("aggregate", out, literal_aggregation(c.grid, z, s, images, c.channels, c.k, c.hard), TOLERANCE<T>);

    auto g = random_numbers(out.size());
    auto got = aggregate_backward<T>(c, g, z, s, images);
    if (c.hard) {  // the choice is a constant
        expect_close("aggregate_backward, logits", got.logits, Numbers(z.size()), 0);
        expect_close("aggregate_backward, strength", got.strength, Numbers(s.size()), 0);
    }
    if constexpr (std::is_same_v<T, double>) {
        auto loss = [&](const Numbers &z, const Numbers &s, const Numbers &x) {
            return inner_product(g, aggregate<T>(c, z, s, x));
        };
        expect_gradient("aggregate_backward, images", [&](const Numbers &x) { return loss(z, s, x); }, images, got.images);
        if (c.hard) return;
        expect_gradient("aggregate_backward, logits", [&](const Numbers &x) { return loss(x, s, images); }, z, got.logits);
        expect_gradient("aggregate_backward, strength", [&](const Numbers &x) { return loss(z, x, images); }, s, got.strength);
    } else {
        auto expected = aggregate_backward<double>(c, g, z, s, images);
        expect_close("aggregate_backward, images", got.images, expected.images, TOLERANCE<T>);
        expect_close("aggregate_backward, logits", got.logits, expected.logits, 10 * TOLERANCE<T>);
        expect_close("aggregate_backward, strength", got.strength, expected.strength, 10 * TOLERANCE<T>);
    }
}

template <class T> void test_neighbors(const Case &c) {
    auto problem = c.problem();
    auto e = c.random_images(c.embedding), y = c.random_images(c.channels);
    auto scale = random_numbers(c.queries()), s = random_numbers(c.queries());
    for (int64_t q = 0; q < c.queries(); ++q) scale[q] = 1 + scale[q] / 2, s[q] = 1 + s[q] / 2;
    auto z = literal_distances(c.grid, e, c.embedding);
    for (size_t i = 0; i < z.size(); ++i) z[i] = -scale[i / c.grid.slots()] * (c.euclidean ? std::sqrt(z[i]) : z[i]);
    auto expected = literal_aggregation(c.grid, z, s, y, c.channels, c.k, c.hard);
    for (size_t i = 0; c.differences && i < expected.size(); ++i) {
        int64_t image = c.channels * c.grid.pixels();
        expected[i] -= y[i / (c.k * image) * image + i % image];
    }
    auto xe = c.to_memory<T>(e, c.embedding), xy = c.to_memory<T>(y, c.channels);
    auto scales = as<T>(scale), strengths = as<T>(s);
    std::vector<T> out(xy.size() * c.k, T(-1));
    auto of_e = c.image(xe.data(), c.embedding), of_y = c.image(xy.data(), c.channels);
    auto of_out = c.image(out.data(), c.k * c.channels);
    auto of_scale = c.of_queries(scales.data()), of_strength = c.of_queries(strengths.data());
    KERNEL(neighbors, &problem, &of_e, &of_scale, &of_strength, &of_y, &of_out);
    expect_close("neighbors", c.from_memory(out, c.k * c.channels), expected, TOLERANCE<T>);
}

// Rows of logits.

template <class T> Numbers select(const Rows &rows, const Numbers &logits, const Numbers &strength) {
    auto z = as<T>(logits), s = as<T>(strength);
    std::vector<T> w(rows.rows * rows.k * rows.slots, T(-1));
    KERNEL(select, &rows, z.data(), s.data(), w.data());
    return Numbers(w.begin(), w.end());
}

template <class T> void test_select(const Rows &rows, double sharpness) {
    auto z = random_numbers(rows.rows * rows.slots, sharpness), s = random_numbers(rows.rows);
    for (double &value : s) value = 1 + value / 2;
    Numbers expected;
    for (int64_t row = 0; row < rows.rows; ++row) {
        auto from = z.begin() + row * rows.slots;
        auto w = literal_selection(Numbers(from, from + rows.slots), s[row], rows.k);
        expected.insert(expected.end(), w.begin(), w.end());
    }
    expect_close("select", select<T>(rows, z, s), expected, TOLERANCE<T>);

    auto g = random_numbers(expected.size());
    auto gw = as<T>(g), zt = as<T>(z), st = as<T>(s);
    std::vector<T> gz(z.size(), T(-1)), gs(s.size(), T(-1));
    KERNEL(select_backward, &rows, gw.data(), zt.data(), st.data(), gz.data(), gs.data());
    if constexpr (std::is_same_v<T, double>) {
        expect_gradient("select_backward, logits", [&](const Numbers &x) { return inner_product(g, select<T>(rows, x, s)); },
                        z, gz);
        expect_gradient("select_backward, strength", [&](const Numbers &x) { return inner_product(g, select<T>(rows, z, x)); },
                        s, gs);
    } else {
        Numbers gz64(z.size()), gs64(s.size());
        expect_zero("select_backward", n3_select_backward_f64(&rows, g.data(), z.data(), s.data(), gz64.data(), gs64.data()));
        expect_close("select_backward, logits", gz, gz64, 10 * TOLERANCE<T>);
        expect_close("select_backward, strength", gs, gs64, 10 * TOLERANCE<T>);
    }
}

// Convolutions.

template <class T> std::vector<T> packed_weights(int64_t in, int64_t out, const Numbers &weight) {
    const Packing packing = {in, out, 0};
    int64_t size = 0;
    KERNEL(conv_packed_size, &packing, &size);
    std::vector<T> packed(size, T(-1));
    auto w = as<T>(weight);
    KERNEL(conv_pack, &packing, w.data(), packed.data());
    return packed;
}

// Two convolutions, a bias and a ReLU after the first, and an image that is added; and the gradient of weights.
template <class T> void test_convolution(int64_t batch, int64_t height, int64_t width, int64_t from, int64_t to, int64_t threads) {
    const int64_t pixels = batch * height * width;
    auto x = random_numbers(pixels * from), first = random_numbers(to * from * 9), second = random_numbers(from * to * 9);
    auto bias = random_numbers(to), g = random_numbers(pixels * to);
    auto between = literal_convolution(batch, height, width, from, to, x, first);
    for (size_t i = 0; i < between.size(); ++i) between[i] = std::max(0.0, between[i] + bias[i % to]);
    auto expected = literal_convolution(batch, height, width, to, from, between, second);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += x[i];

    auto xt = as<T>(x), bt = as<T>(bias), gt = as<T>(g);
    auto first_packed = packed_weights<T>(from, to, first), second_packed = packed_weights<T>(to, from, second);
    const Layer layers[] = {{first_packed.data(), bt.data(), from, to, 1}, {second_packed.data(), nullptr, to, from, 0}};
    std::vector<T> y(x.size(), T(-1));
    Chain chain = {};
    chain.layers = 2;
    chain.batch = batch;
    chain.height = chain.out_height = height;
    chain.width = chain.out_width = width;
    chain.x = xt.data();
    chain.y = y.data();
    chain.add = xt.data();
    chain.add_channels = from;
    chain.x_col = chain.y_col = chain.add_col = from;
    chain.x_row = chain.y_row = chain.add_row = from * width;
    chain.x_batch = chain.y_batch = chain.add_batch = from * width * height;
    chain.tile_rows = (height + 3) / 4;
    chain.tile_cols = (width + 3) / 4;
    chain.step = 4;
    chain.threads = threads;
    KERNEL(conv_chain, &chain, layers);
    expect_close("conv_chain", y, expected, TOLERANCE<T>);

    std::vector<T> gw(first.size(), T(-1));
    const WeightGradient sizes = {batch, height, width, from, to, from * width * height, from * width, from,
                                  to * width * height, to * width, to, threads};
    KERNEL(conv_weight_gradient, &sizes, xt.data(), gt.data(), gw.data());
    Numbers expected_gradient;
    const auto channel = [&](const Numbers &of, int64_t count, int64_t which) {
        Numbers out;
        for (int64_t i = which; i < pixels * count; i += count) out.push_back(of[i]);
        return out;
    };
    for (int64_t i = 0; i < to * from; ++i)
        for (int64_t u = 0; u < 9; ++u) {  // linear in the weights: its gradient is what a single weight gives
            Numbers single(9);
            single[u] = 1;
            const auto given = literal_convolution(batch, height, width, 1, 1, channel(x, from, i % from), single);
            expected_gradient.push_back(inner_product(channel(g, to, i / from), given));
        }
    expect_close("conv_weight_gradient", gw, expected_gradient, TOLERANCE<T>);
}

// Batch norm and ReLU; their gradients by finite differences, in double.
Numbers literal_norm(int64_t rows, int64_t channels, const Numbers &x, const Numbers &weight, const Numbers &bias, double eps) {
    Numbers y(x.size());
    for (int64_t c = 0; c < channels; ++c) {
        double mean = 0, var = 0;
        for (int64_t r = 0; r < rows; ++r) mean += x[r * channels + c] / rows;
        for (int64_t r = 0; r < rows; ++r) var += (x[r * channels + c] - mean) * (x[r * channels + c] - mean) / rows;
        for (int64_t r = 0; r < rows; ++r)
            y[r * channels + c] = std::max(0.0, (x[r * channels + c] - mean) / std::sqrt(var + eps) * weight[c] + bias[c]);
    }
    return y;
}
template <class T> void test_norm(int64_t rows, int64_t channels, int64_t threads) {
    auto x = random_numbers(rows * channels), weight = random_numbers(channels), bias = random_numbers(channels);
    auto g = random_numbers(rows * channels);
    auto xt = as<T>(x), wt = as<T>(weight), bt = as<T>(bias), gt = as<T>(g);
    std::vector<T> mean(channels), var(channels), y(x.size()), gx(x.size()), gw(channels), gb(channels);
    const double eps = 1e-3;
    const Norm norm = {rows, channels, 1, 1, threads, eps};
    KERNEL(norm_statistics, &norm, xt.data(), mean.data(), var.data());
    KERNEL(norm_apply, &norm, xt.data(), mean.data(), var.data(), wt.data(), bt.data(), y.data());
    expect_close("norm_apply", y, literal_norm(rows, channels, x, weight, bias, eps), TOLERANCE<T>);
    KERNEL(norm_backward, &norm, gt.data(), xt.data(), mean.data(), var.data(), wt.data(), bt.data(), gx.data(), gw.data(),
           gb.data());
    if constexpr (std::is_same_v<T, double>) {
        const auto loss = [&](const Numbers &a, const Numbers &w, const Numbers &b) {
            return inner_product(g, literal_norm(rows, channels, a, w, b, eps));
        };
        expect_gradient("norm_backward, input", [&](const Numbers &a) { return loss(a, weight, bias); }, x, gx);
        expect_gradient("norm_backward, weight", [&](const Numbers &w) { return loss(x, w, bias); }, weight, gw);
        expect_gradient("norm_backward, bias", [&](const Numbers &b) { return loss(x, weight, b); }, bias, gb);
    }
}

template <class T> void test_all() {
    std::snprintf(where, sizeof where, "%s, %s", n3_instruction_set(), std::is_same_v<T, float> ? "float" : "double");
    int before = failures;
    // batch, rows, cols, cell, patch, window, clip, height, width, top, left; embedding, channels, k, channels last
    const Case small = {{2, 5, 4, 2, 2, 3, false, 10, 8, 0, 0}, 3, 2, 3, false};
    const Case clipped = {{1, 6, 5, 1, 3, 5, true, 6, 5, 0, 0}, 2, 5, 3, true};
    const Case padded = {{1, 5, 6, 3, 2, 3, false, 13, 16, 1, 2}, 1, 3, 5, true};
    const Case tiles = {{1, 30, 55, 1, 2, 3, false, 30, 55, 0, 0}, 2, 3, 2, false};  // more than one in each direction
    for (Case c : {small, clipped, padded, tiles})
        for (int64_t threads : {1, 3}) {
            c.threads = threads;
            test_distances<T>(c);
            for (double sharpness : {1.0, 40.0}) test_aggregate<T>(c, sharpness);
            test_neighbors<T>(c);
            c.hard = true;
            test_aggregate<T>(c, 1.0);
            c.euclidean = c.differences = true;
            test_neighbors<T>(c);
            c.hard = false;
            test_neighbors<T>(c);
            c.euclidean = c.differences = false;
        }
    for (int64_t threads : {1, 3})
        for (double sharpness : {1.0, 40.0}) {
            test_select<T>({4, 5, 3, threads}, sharpness);
            test_select<T>({3, 40, 7, threads}, sharpness);
        }
    for (int64_t threads : {1, 3}) {
        test_convolution<T>(2, 9, 6, 3, 2, threads);
        test_convolution<T>(1, 4, 13, 17, 5, threads);
        test_convolution<T>(1, 70, 9, 8, 16, threads);  // more rows than a chain keeps
        test_norm<T>(70, 8, threads);
        test_norm<T>(3, 16, threads);
    }
    std::printf("%s: %s\n", where, failures == before ? "ok" : "failed");
}

int main() {
    const char *const names[] = {"baseline", "avx2", "avx512"};
    int best = 2;
    while (std::strcmp(n3_instruction_set(), names[best]) != 0) --best;
    for (level = 0; level <= best; ++level) {
        if (std::strcmp(n3_instruction_set(), names[level]) != 0)
            expect_zero("the instruction sets that this program keeps from the kernel", 1);
        test_all<float>();
        test_all<double>();
    }
    return failures != 0;
}
