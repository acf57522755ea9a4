# mypy: ignore-errors
"""Triton: distances, selection and weighted sums of one query at a time, in registers.

One program has one query with all its candidates, a row of BLOCK_M. Weights of a query are a tile (BLOCK_K, BLOCK_M)
that never reaches memory. See ``selection.py`` for the numerics: what a peak near 1 leaves is the sum of the others.
"""

import triton
import triton.language as tl


@triton.jit
def _row(tile, j, BLOCK_K: tl.constexpr):
    """Row j of a tile."""
    rows = tl.arange(0, BLOCK_K)[:, None]
    return tl.sum(tl.where(rows == j, tile, 0.0), 0)


@triton.jit
def _put(tile, j, row, BLOCK_K: tl.constexpr):
    """The tile with another row j."""
    rows = tl.arange(0, BLOCK_K)[:, None]
    return tl.where(rows == j, row[None, :], tile)


@triton.jit
def _squares(queries, items, q, rows, keep, E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr):
    """Squared distances of a query to its candidates, 0 where there is none, (BLOCK_M,)."""
    d = tl.zeros((BLOCK_M,), dtype=queries.dtype.element_ty)
    for first in range(0, E, BLOCK_E):
        e = first + tl.arange(0, BLOCK_E)
        x = tl.load(queries + q * E + e, mask=e < E, other=0.0)
        y = tl.load(items + rows[:, None] * E + e[None, :], mask=keep[:, None] & (e[None, :] < E), other=0.0)
        difference = tl.where(keep[:, None] & (e[None, :] < E), x[None, :] - y, 0.0)
        d += tl.sum(difference * difference, 1)
    return d


@triton.jit
def _step(z, keep, slots):
    """Log weights of one step, where the peak is, and log(1 - w) there."""
    none = float("-inf")
    top = tl.max(z, 0)
    peak = slots == tl.min(tl.where(z == top, slots, 1 << 30), 0)  # the first of the largest
    others = tl.where(peak, none, z)
    second = tl.maximum(tl.max(others, 0), -1e30)
    rest = second + tl.log(tl.maximum(tl.sum(tl.where(others > none, tl.exp(others - second), 0.0), 0), 1e-37)) - top
    # rest: log of the others' sum relative to the peak; log of the whole is softplus(rest)
    total = tl.where(rest > 0, rest + tl.log(1 + tl.exp(-rest)), tl.log(1 + tl.exp(rest)))
    small = tl.exp(tl.minimum(rest, 0.0))
    total = tl.where(rest < -8.0, small - small * small / 2, total)  # log1p
    return tl.where(keep, z - top - total, none), peak, rest - total


@triton.jit
def _log_one_minus(log_w, peak, log_peak):
    """log(1 - w): from 1 - w, except for the peak."""
    w = tl.exp(tl.where(peak, -1.0, log_w))
    plain = tl.where(w < 1e-4, -w - w * w / 2, tl.log(1 - w))
    return tl.where(peak, log_peak, plain)


@triton.jit
def _select(z, strength, keep, slots, K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_M: tl.constexpr):
    """Log weights (BLOCK_K, BLOCK_M) of k steps, and log(1 - w) of each peak, (BLOCK_K,)."""
    none = float("-inf")
    log_weights = tl.full((BLOCK_K, BLOCK_M), none, dtype=z.dtype)
    peaks = tl.zeros((BLOCK_K,), dtype=z.dtype)
    for j in tl.static_range(K):
        log_w, peak, log_peak = _step(z, keep, slots)
        log_weights = _put(log_weights, j, log_w, BLOCK_K)
        peaks = tl.where(tl.arange(0, BLOCK_K) == j, log_peak, peaks)
        z = tl.where(keep, tl.maximum(z + strength * _log_one_minus(log_w, peak, log_peak), -3e36), none)
        z = z - tl.max(z, 0)
    return log_weights, peaks


@triton.jit
def forward(
    queries, items, index, scale, strength, values, out, Q, N,
    M: tl.constexpr, E: tl.constexpr, C: tl.constexpr, K: tl.constexpr, EUCLIDEAN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """queries (B, Q, E), items (B, N, E), index (B, Q, M), scale, strength (B, Q), values (B, N, C) -> (B, Q, k, C)."""
    q = tl.program_id(0).to(tl.int64)
    slots = tl.arange(0, BLOCK_M)
    number = tl.load(index + q * M + slots, mask=slots < M, other=-1)
    keep = (number >= 0) & (number < N)
    rows = q // Q * N + tl.where(keep, number, 0)
    d = _squares(queries, items, q, rows, keep, E, BLOCK_E, BLOCK_M)
    if EUCLIDEAN:
        d = tl.sqrt(d)
    near = tl.min(tl.where(keep, d, float("inf")), 0)
    z = tl.where(keep, -tl.load(scale + q) * (d - near), float("-inf"))
    log_weights, _ = _select(z, tl.load(strength + q), keep, slots, K, BLOCK_K, BLOCK_M)
    some = tl.sum(keep.to(tl.int32), 0) > 0
    w = tl.where(keep[None, :] & some, tl.exp(log_weights), 0.0)
    k = tl.arange(0, BLOCK_K)
    for first in range(0, C, BLOCK_C):
        c = first + tl.arange(0, BLOCK_C)
        v = tl.load(values + rows[:, None] * C + c[None, :], mask=keep[:, None] & (c[None, :] < C), other=0.0)
        mean = tl.dot(w, v, input_precision="ieee", out_dtype=w.dtype)  # (BLOCK_K, BLOCK_C)
        place = out + (q * K + k[:, None]) * C + c[None, :]
        tl.store(place, mean, mask=(k[:, None] < K) & (c[None, :] < C))


@triton.jit
def backward(
    g_out, queries, items, index, scale, strength, values,
    g_queries, g_items, g_scale, g_strength, g_values, Q, N,
    M: tl.constexpr, E: tl.constexpr, C: tl.constexpr, K: tl.constexpr, EUCLIDEAN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Gradients of all that has one; those of items and values are added atomically to what is there."""
    q = tl.program_id(0).to(tl.int64)
    slots = tl.arange(0, BLOCK_M)
    number = tl.load(index + q * M + slots, mask=slots < M, other=-1)
    keep = (number >= 0) & (number < N)
    if tl.sum(keep.to(tl.int32), 0) > 0:
        rows = q // Q * N + tl.where(keep, number, 0)
        d = _squares(queries, items, q, rows, keep, E, BLOCK_E, BLOCK_M)
        if EUCLIDEAN:
            d = tl.sqrt(d)
        near = tl.min(tl.where(keep, d, float("inf")), 0)
        s, strong = tl.load(scale + q), tl.load(strength + q)
        z = tl.where(keep, -s * (d - near), float("-inf"))
        log_weights, peaks = _select(z, strong, keep, slots, K, BLOCK_K, BLOCK_M)
        w_all = tl.where(keep[None, :], tl.exp(log_weights), 0.0)  # (BLOCK_K, BLOCK_M)
        k = tl.arange(0, BLOCK_K)
        g_weights = tl.zeros((BLOCK_K, BLOCK_M), dtype=d.dtype)
        for first in range(0, C, BLOCK_C):
            c = first + tl.arange(0, BLOCK_C)
            there = keep[:, None] & (c[None, :] < C)
            v = tl.load(values + rows[:, None] * C + c[None, :], mask=there, other=0.0)
            place = g_out + (q * K + k[:, None]) * C + c[None, :]
            g = tl.load(place, mask=(k[:, None] < K) & (c[None, :] < C), other=0.0)  # (BLOCK_K, BLOCK_C)
            g_weights += tl.dot(g, tl.trans(v), input_precision="ieee", out_dtype=d.dtype)
            share = tl.dot(tl.trans(w_all), g, input_precision="ieee", out_dtype=d.dtype)  # (BLOCK_M, BLOCK_C)
            tl.atomic_add(g_values + rows[:, None] * C + c[None, :], share, mask=there)
        g_z = tl.zeros((BLOCK_M,), dtype=d.dtype)
        g_c = tl.sum(g_z, 0)
        for i in tl.static_range(K):
            j = K - 1 - i
            w, log_w = _row(w_all, j, BLOCK_K), _row(log_weights, j, BLOCK_K)
            g = _row(g_weights, j, BLOCK_K) * w
            log_peak = tl.sum(tl.where(k == j, peaks, 0.0), 0)
            if i > 0:
                first_top = tl.min(tl.where(log_w == tl.max(log_w, 0), slots, 1 << 30), 0)
                peak = (slots == first_top) & (log_w > -0.5108)  # log 0.6
                any_peak = tl.max(peak.to(tl.int32), 0)
                small = tl.where(peak, 0.0, w)
                effect = tl.where(keep, g_z * _log_one_minus(tl.where(keep, log_w, -80.0), peak, log_peak), 0.0)
                g_c += tl.sum(effect, 0)
                h = strong * g_z
                g = g - h * small / (1 - small)
                pull = tl.sum(tl.where(peak, h * w, 0.0), 0)
                rest = tl.where(keep & (peak == 0), tl.exp(tl.where(keep, log_w, -80.0) - log_peak), 0.0)
                g_z = g_z + tl.where(any_peak > 0, tl.where(peak, -pull, pull * rest), 0.0)
            g_z = g_z + g - w * tl.sum(g, 0)
        g_z = tl.where(keep, g_z, 0.0)
        tl.store(g_strength + q, g_c)
        tl.store(g_scale + q, -tl.sum(g_z * d, 0))
        g_d = -s * g_z
        if EUCLIDEAN:
            g_d = tl.where(d > 0, g_d / (2 * tl.where(d > 0, d, 1.0)), 0.0)
        for first in range(0, E, BLOCK_E):
            e = first + tl.arange(0, BLOCK_E)
            there = keep[:, None] & (e[None, :] < E)
            x = tl.load(queries + q * E + e, mask=e < E, other=0.0)
            y = tl.load(items + rows[:, None] * E + e[None, :], mask=there, other=0.0)
            both = tl.where(there, 2 * g_d[:, None] * (x[None, :] - y), 0.0)  # (BLOCK_M, BLOCK_E)
            tl.store(g_queries + q * E + e, tl.sum(both, 0), mask=e < E)
            tl.atomic_add(g_items + rows[:, None] * E + e[None, :], -both, mask=there)
