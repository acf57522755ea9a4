// The compiled CPU code behind a plain C ABI: raw pointers in, raw pointers out, no headers of PyTorch.
//
// The engine itself is engine.inc, compiled once for each instruction set that this compiler and processor
// family know; the best one that the machine has is chosen when a function is called.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <limits>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if __has_include(<dlfcn.h>) && __has_include(<unistd.h>)
#include <dlfcn.h>
#include <unistd.h>
#endif

#if !defined(__GNUC__)
#error "the kernel needs the vector types of GCC or Clang"
#endif

namespace {

// One image batch and its grid. Mirrors `Problem` in native.py.
struct Problem {
    int64_t batch;
    int64_t rows, cols;     // cells of the grid, G_h x G_w
    int64_t cell;           // pixels along one side of a cell, s
    int64_t patch;          // cells along one side of a patch, m
    int64_t window;         // patches along one side of a window
    int64_t clip;           // border: 0 shifts the window inwards, 1 cuts it off
    int64_t embedding;      // channels that are compared
    int64_t channels;       // channels that are aggregated, C
    int64_t k;
    int64_t euclidean;      // n3_neighbors: take the root of the squared distance
    int64_t differences;    // n3_neighbors: subtract what the image itself has
    int64_t hard;           // 1: k nearest neighbours, 0: the continuous relaxation
    int64_t threads;
};

// Images of a batch, in any layout, and where they lie on the grid, of pixels or of queries: pixels around them are 0.
// Mirrors `Image` in native.py.
struct Image {
    void *data;
    int64_t batch, channel, row, col;  // steps, in numbers
    int64_t height, width, top, left;
};

// Queries of sets, each with all its candidates. Mirrors `Rows` in native.py.
struct Rows {
    int64_t rows;
    int64_t slots;  // candidates of a query, M
    int64_t k;
    int64_t threads;
};

// Queries of sets, each with candidates of its own. Mirrors `Pool` in native_sets.py.
struct Pool {
    int64_t batch, queries, items;
    int64_t slots;      // candidates of a query, M
    int64_t embedding;  // numbers that are compared
    int64_t channels;   // numbers that are aggregated, C
    int64_t k;
    int64_t euclidean, hard;  // as in Problem
    int64_t threads;
};

// Weights of a 3 x 3 convolution. These four mirror the structures of kernel/convolution.py.
struct Packing {
    int64_t in_channels, out_channels;
    int64_t turned;  // as the gradient of the input needs them
};

struct Layer {
    const void *packed, *bias;
    int64_t in_channels, out_channels;
    int64_t relu;
};

// Convolutions that follow on each other. Images are channels last; steps are in numbers.
struct Chain {
    int64_t layers, batch, height, width;
    const void *x;
    int64_t x_batch, x_row, x_col;
    void *y;
    int64_t out_height, out_width, y_batch, y_row, y_col;
    const void *add;  // to the first channels of y
    int64_t add_channels, add_batch, add_row, add_col;
    const void *dot;                                // see Link
    int64_t tile_rows, tile_cols, step, top, left;  // of the last layer, see TileGrid
    int64_t threads;
};

struct WeightGradient {
    int64_t batch, height, width, in_channels, out_channels;
    int64_t x_batch, x_row, x_col, g_batch, g_row, g_col;
    int64_t threads;
};

// Batch norm of pixels, channels last and one pixel behind the other. Mirrors `_Norm` in kernel/batch_norm.py.
struct Norm {
    int64_t rows, channels;
    int64_t relu;   // whether a ReLU follows
    int64_t batch;  // backward: whether mean and variance are those of the input
    int64_t threads;
    double eps;
};

// Patches of one image, those on a grid among them whose groups are found and filtered. Mirrors `Patches` in
// neighbors/similar.py.
struct Patches {
    int64_t channels, height, width;
    int64_t patch;   // side of a patch
    int64_t step;    // pixels between patches of the grid; the last ones lie at the border of the image
    int64_t radius;  // pixels that members of a group lie away at most
    int64_t count;   // members of a group at most
    int64_t band;    // rows of pixels that are filtered one after the other
    int64_t wiener;  // 1: Wiener filter with the coefficients of the guide, 0: hard threshold
    int64_t threads;
    double farthest;   // mean squared difference of a member, at most
    double threshold;  // in standard deviations of the noise
};

#include "checks.inc"

// libgomp's way to run a function on a team of threads.
using Team = void (*)(void (*)(void *), void *, unsigned threads, unsigned flags);

#if __has_include(<dlfcn.h>) && __has_include(<unistd.h>)
const Team team = reinterpret_cast<Team>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
const pid_t loaded_by = getpid();
#endif

// The team of PyTorch's own OpenMP, null where PyTorch was built with something else. Its threads wait spinning for a
// while after each of PyTorch's loops: others that we started would find no free core. Where this process is a fork of the
// one that loaded the kernel, they have stayed behind, and libgomp would wait for them for ever.
Team openmp_team() {
#if __has_include(<dlfcn.h>) && __has_include(<unistd.h>)
    return getpid() == loaded_by ? team : nullptr;
#else
    return nullptr;
#endif
}

// Runs work() on up to `threads` threads, this one among them. It must not throw.
template <class Work> void on_threads(int64_t threads, Work &work) {
    if (threads > 1) {
        if (const Team team = openmp_team()) {
            team([](void *data) { (*static_cast<Work *>(data))(); }, &work, static_cast<unsigned>(threads), 0);
            return;
        }
    }
    std::vector<std::thread> pool;
    for (int64_t t = 1; t < threads; ++t) {
        try {
            pool.emplace_back([&work] { work(); });
        } catch (const std::exception &) {
            break;  // no further thread to be had: go on with those that run
        }
    }
    work();
    for (auto &thread : pool) thread.join();
}

// Runs body(i) for i in [0, n) on up to `threads` threads. What body(i) writes must not depend on who runs it, so that
// the result is the same to the last bit for any number of threads.
template <class MakeBody> void parallel(int64_t n, int64_t threads, MakeBody make_body) {
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    auto work = [&] {
        try {
            if (next.load() >= n) return;
            auto body = make_body();
            for (int64_t i; (i = next.fetch_add(1)) < n;) body(i);
        } catch (const std::exception &) {
            failed = true;
        }
    };
    on_threads(n > 1 ? threads : 1, work);
    if (failed) throw std::bad_alloc();
}

}  // namespace

// x86-64: registers are few (16) below AVX-512, so blocks of 4 x 3 accumulators; elsewhere 8 x 3. For tests,
// N3_REGISTER_BYTES makes one engine only, with registers of that many bytes on any processor.
#define N3_NAMESPACE baseline
#if defined(N3_REGISTER_BYTES)
#define N3_VECTOR_BYTES N3_REGISTER_BYTES
#else
#define N3_VECTOR_BYTES 16
#endif
#if defined(__x86_64__) && N3_VECTOR_BYTES < 64
#define N3_BLOCK_K 4
#else
#define N3_BLOCK_K 8
#endif
#include "engine.inc"
#undef N3_NAMESPACE
#undef N3_VECTOR_BYTES
#undef N3_BLOCK_K

#if defined(__x86_64__) && !defined(N3_REGISTER_BYTES)
#define N3_X86 1
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define N3_NAMESPACE avx2
#define N3_VECTOR_BYTES 32
#define N3_BLOCK_K 4
#include "engine.inc"
#undef N3_NAMESPACE
#undef N3_VECTOR_BYTES
#undef N3_BLOCK_K
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,fma")
#endif
#define N3_NAMESPACE avx512
#define N3_VECTOR_BYTES 64
#define N3_BLOCK_K 8
#include "engine.inc"
#undef N3_NAMESPACE
#undef N3_VECTOR_BYTES
#undef N3_BLOCK_K
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace {

enum Isa { BASELINE = 0, AVX2 = 1, AVX512 = 2 };

Isa best_isa() {
#if defined(N3_X86)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return AVX2;
#endif
    return BASELINE;
}

constexpr int INVALID = 2;  // what was asked for makes no sense

// Returns 0, or 1 when memory ran out.
template <class Baseline, class Avx2, class Avx512> int run(Baseline baseline, Avx2 avx2, Avx512 avx512) {
    try {
        switch (best_isa()) {
            case AVX512: avx512(); break;
            case AVX2: avx2(); break;
            default: baseline();
        }
        return 0;
    } catch (const std::exception &) {
        return 1;
    }
}

}  // namespace

#if defined(N3_X86)
#define N3_RUN(call) run([&] { baseline::call; }, [&] { avx2::call; }, [&] { avx512::call; })
#else
#define N3_RUN(call) run([&] { baseline::call; }, [&] { baseline::call; }, [&] { baseline::call; })
#endif

#define N3_EXPORT(name, T)                                                                                             \
    extern "C" int n3_distances_##name(const Problem *p, const Image *e, T *d) {                                       \
        return valid(*p) && valid(*e, *p, p->embedding) ? N3_RUN(distances<T>(*p, *e, d)) : INVALID;                   \
    }                                                                                                                  \
    extern "C" int n3_distances_backward_##name(const Problem *p, const Image *e, const T *gd, const Image *ge) {      \
        if (!(valid(*p) && valid(*e, *p, p->embedding) && valid(*ge, *p, p->embedding))) return INVALID;               \
        return N3_RUN(distances_backward<T>(*p, *e, gd, *ge));                                                         \
    }                                                                                                                  \
    extern "C" int n3_aggregate_##name(const Problem *p, const T *z, const T *c, const Image *y, const Image *out) {   \
        if (!(valid(*p) && valid(*y, *p, p->channels) && valid(*out, *p, p->k * p->channels))) return INVALID;         \
        return N3_RUN(aggregate<T>(*p, z, c, *y, *out));                                                               \
    }                                                                                                                  \
    extern "C" int n3_aggregate_backward_##name(const Problem *p, const Image *g, const T *z, const T *c,              \
                                                const Image *y, T *gz, T *gc, const Image *gy) {                       \
        if (!(valid(*p) && valid(*g, *p, p->k * p->channels) &&                                                        \
              valid(*y, *p, p->channels) && valid(*gy, *p, p->channels)))                                              \
            return INVALID;                                                                                            \
        return N3_RUN(aggregate_backward<T>(*p, *g, z, c, *y, gz, gc, *gy));                                           \
    }                                                                                                                  \
    extern "C" int n3_neighbors_##name(const Problem *p, const Image *e, const Image *scale, const Image *c,           \
                                       const Image *y, const Image *out) {                                             \
        if (!(valid(*p) && valid(*e, *p, p->embedding) && covers(*scale, *out, *p) && covers(*c, *out, *p) &&          \
              valid(*y, *p, p->channels) && valid(*out, *p, p->k * p->channels)))                                      \
            return INVALID;                                                                                            \
        return N3_RUN(neighbors<T>(*p, *e, *scale, *c, *y, *out));                                                     \
    }                                                                                                                  \
    extern "C" int n3_select_##name(const Rows *p, const T *z, const T *c, T *w) {                                     \
        return valid(*p) ? N3_RUN(select<T>(*p, z, c, w)) : INVALID;                                                   \
    }                                                                                                                  \
    extern "C" int n3_select_backward_##name(const Rows *p, const T *gw, const T *z, const T *c, T *gz, T *gc) {       \
        return valid(*p) ? N3_RUN(select_backward<T>(*p, gw, z, c, gz, gc)) : INVALID;                                 \
    }                                                                                                                  \
    extern "C" int n3_choose_##name(const Pool *p, const T *q, const T *e, const int64_t *i, const T *s, const T *c,   \
                                    const T *v, T *out) {                                                              \
        return valid(*p) ? N3_RUN(choose<T>(*p, q, e, i, s, c, v, out)) : INVALID;                                     \
    }                                                                                                                  \
    extern "C" int n3_choose_backward_##name(const Pool *p, const T *g, const T *q, const T *e, const int64_t *i,      \
                                             const T *s, const T *c, const T *v, T *gq, T *ge, T *gs, T *gc, T *gv) {  \
        return valid(*p) ? N3_RUN(choose_backward<T>(*p, g, q, e, i, s, c, v, gq, ge, gs, gc, gv)) : INVALID;          \
    }                                                                                                                  \
    extern "C" int n3_norm_statistics_##name(const Norm *p, const T *x, T *mean, T *var) {                             \
        return valid(*p) ? N3_RUN(norm_statistics<T>(*p, x, mean, var)) : INVALID;                                     \
    }                                                                                                                  \
    extern "C" int n3_norm_apply_##name(const Norm *p, const T *x, const T *mean, const T *var, const T *weight,       \
                                        const T *bias, T *y) {                                                         \
        return valid(*p) ? N3_RUN(norm_apply<T>(*p, x, mean, var, weight, bias, y)) : INVALID;                         \
    }                                                                                                                  \
    extern "C" int n3_norm_backward_##name(const Norm *p, const T *g, const T *x, const T *mean, const T *var,         \
                                           const T *weight, const T *bias, T *gx, T *gw, T *gb) {                      \
        return valid(*p) ? N3_RUN(norm_backward<T>(*p, g, x, mean, var, weight, bias, gx, gw, gb)) : INVALID;          \
    }                                                                                                                  \
    extern "C" int n3_similar_##name(const Patches *p, const T *image, int32_t *index, T *distance) {                  \
        return valid(*p) ? N3_RUN(similar<T>(*p, image, index, distance)) : INVALID;                                   \
    }                                                                                                                  \
    extern "C" int n3_collaborate_##name(const Patches *p, const T *noisy, const T *guide, const int32_t *index,       \
                                         const T *level, const T *forward, const T *backward, const T *window,         \
                                         T *out) {                                                                     \
        if (!(valid(*p) && filters(*p))) return INVALID;                                                               \
        return N3_RUN(collaborate<T>(*p, noisy, guide, index, level, forward, backward, window, out));                 \
    }                                                                                                                  \
    extern "C" int n3_conv_packed_size_##name(const Packing *p, int64_t *size) {                                       \
        return valid(*p) ? N3_RUN(packed_size<T>(p->in_channels, p->out_channels, size)) : INVALID;                    \
    }                                                                                                                  \
    extern "C" int n3_conv_pack_##name(const Packing *p, const T *w, T *packed) {                                      \
        return valid(*p) ? N3_RUN(pack<T>(*p, w, packed)) : INVALID;                                                   \
    }                                                                                                                  \
    extern "C" int n3_conv_chain_##name(const Chain *p, const Layer *layers) {                                         \
        return valid(*p, layers) ? N3_RUN(chain<T>(*p, layers)) : INVALID;                                             \
    }                                                                                                                  \
    extern "C" int n3_conv_weight_gradient_##name(const WeightGradient *p, const T *x, const T *g, T *gw) {            \
        return valid(*p) ? N3_RUN(weight_gradient<T>(*p, x, g, gw)) : INVALID;                                         \
    }

N3_EXPORT(f32, float)
N3_EXPORT(f64, double)

// Changes with the arguments of the functions above, and with INTERFACE in __init__.py.
extern "C" int n3_interface() { return 6; }

extern "C" const char *n3_instruction_set() {
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    return names[best_isa()];
}
