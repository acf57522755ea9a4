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
#include <limits>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if __has_include(<dlfcn.h>)
#include <dlfcn.h>
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

// Images of a convolution, channels last. Mirrors `Tiles` in convolution.py.
struct Tiles {
    int64_t batch, height, width, channels;
    int64_t threads;
};

// libgomp's way to run a function on a team of threads.
using Team = void (*)(void (*)(void *), void *, unsigned threads, unsigned flags);

// The team of PyTorch's own OpenMP, null where PyTorch was built with something else. Its threads wait spinning for a
// while after each of PyTorch's loops: others that we started would find no free core.
Team openmp_team() {
#if __has_include(<dlfcn.h>)
    static const Team team = reinterpret_cast<Team>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return team;
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

// x86-64: registers are few (16) below AVX-512, so blocks of 4 x 3 accumulators; elsewhere 8 x 3.
#define N3_NAMESPACE baseline
#define N3_VECTOR_BYTES 16
#if defined(__x86_64__)
#define N3_BLOCK_K 4
#else
#define N3_BLOCK_K 8
#endif
#include "engine.inc"
#undef N3_NAMESPACE
#undef N3_VECTOR_BYTES
#undef N3_BLOCK_K

#if defined(__x86_64__)
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

#define N3_EXPORT(name, T)                                                                                       \
    extern "C" int n3_distances_##name(const Problem *p, const Image *e, T *d) {                                       \
        return N3_RUN(distances<T>(*p, *e, d));                                                                        \
    }                                                                                                                  \
    extern "C" int n3_distances_backward_##name(const Problem *p, const Image *e, const T *gd, const Image *ge) {      \
        return N3_RUN(distances_backward<T>(*p, *e, gd, *ge));                                                         \
    }                                                                                                                  \
    extern "C" int n3_aggregate_##name(const Problem *p, const T *z, const T *c, const Image *y, const Image *out) {   \
        return N3_RUN(aggregate<T>(*p, z, c, *y, *out));                                                               \
    }                                                                                                                  \
    extern "C" int n3_aggregate_backward_##name(const Problem *p, const Image *g, const T *z, const T *c,              \
                                                const Image *y, T *gz, T *gc, const Image *gy) {                       \
        return N3_RUN(aggregate_backward<T>(*p, *g, z, c, *y, gz, gc, *gy));                                           \
    }                                                                                                                  \
    extern "C" int n3_neighbors_##name(const Problem *p, const Image *e, const Image *scale, const Image *c,           \
                                       const Image *y, const Image *out) {                                             \
        return N3_RUN(neighbors<T>(*p, *e, *scale, *c, *y, *out));                                                     \
    }                                                                                                                  \
    extern "C" int n3_select_##name(const Rows *p, const T *z, const T *c, T *w) {                                     \
        return N3_RUN(select<T>(*p, z, c, w));                                                                         \
    }                                                                                                                  \
    extern "C" int n3_select_backward_##name(const Rows *p, const T *gw, const T *z, const T *c, T *gz, T *gc) {       \
        return N3_RUN(select_backward<T>(*p, gw, z, c, gz, gc));                                                       \
    }                                                                                                                  \
    extern "C" int n3_winograd_input_##name(const Tiles *p, const T *x, T *v) {                                        \
        return N3_RUN(winograd_input<T>(*p, x, v));                                                                    \
    }                                                                                                                  \
    extern "C" int n3_winograd_output_##name(const Tiles *p, const T *m, T *y) {                                       \
        return N3_RUN(winograd_output<T>(*p, m, y));                                                                   \
    }                                                                                                                  \
    extern "C" int n3_winograd_gradient_##name(const Tiles *p, const T *g, T *v) {                                     \
        return N3_RUN(winograd_gradient<T>(*p, g, v));                                                                 \
    }

N3_EXPORT(f32, float)
N3_EXPORT(f64, double)

// Changes with the arguments of the functions above, and with INTERFACE in __init__.py.
extern "C" int n3_interface() { return 4; }

extern "C" const char *n3_instruction_set() {
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    return names[best_isa()];
}
