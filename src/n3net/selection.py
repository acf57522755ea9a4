"""From distances and a temperature to k weight vectors: Eqs. 1-11 of the paper.

| letter | meaning                                                              |
|--------|----------------------------------------------------------------------|
| ...    | any leading shape: batch, queries                                    |
| M      | candidates of one query                                              |
| k      | neighbours                                                           |
| z      | logits after the temperature, ``-d / t``; ``-inf`` where masked      |
| c      | strength of the logit update, ``1 / t`` (tempered) or 1 (untempered) |

With these, the whole of Eqs. 8-10 reads ``w = softmax(z); z <- z + c log(1 - w)``.

Where a weight is 1 to the last bit, ``log(1 - w)`` is still a finite number, because only one weight a (the peak) can
come near 1, and ``1 - w_a`` is the sum of all the others: ``log(1 - w_a) = logsumexp(z without a) - logsumexp(z)``.
No subtraction from 1 is involved.

Nothing overflows, whatever the distances and temperatures are: logits and strengths are cut off at :func:`largest`, far
beyond where weights are 0 or 1 to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from n3net.modes import readable, tracing, transforms_active

Rule = Literal["continuous", "hard", "straight-through", "stochastic", "concrete"]
Update = Literal["tempered", "untempered"]
Running = Literal["sum", "union"]

_TINY = torch.finfo(torch.float32).tiny
_PEAK = math.log(0.6)  # at most one weight of a row lies above; below, log1p(-w) has all its digits


def select(
    distances: Tensor,
    k: int,
    temperature: float | Tensor = 1.0,
    *,
    rule: Rule = "continuous",
    update: Update = "tempered",
    mask: Tensor | None = None,
    annealing: float | Tensor = 1.0,
    generator: torch.Generator | None = None,
    running: Running | None = None,
) -> Tensor:
    r"""Choose k neighbours of each query among M candidates, as weights.

    Row j of the result weighs the candidates of the j-th neighbour; each row sums to 1, and
    ``weights @ items`` are the neighbours (Eqs. 7 and 11).

    Args:
        distances: of each query to its candidates, any finite numbers, shape :math:`(..., M)`. A candidate at
            distance ``inf`` counts as masked.
        k: how many neighbours, at most the number of candidates that the mask leaves.
        temperature: :math:`t > 0`, a number or one value per query, shape :math:`(...)`.
        rule: ``"continuous"``, the paper's relaxation (Eqs. 8-10), differentiable in distances and temperature;
            ``"hard"``, k nearest neighbours, ties broken by index (Eqs. 1-2); ``"straight-through"``, hard weights with
            the gradient of the continuous ones; ``"stochastic"``, k neighbours drawn without replacement (Eqs. 3-6);
            ``"concrete"``, their Gumbel-softmax relaxation.
        update: ``"tempered"``, Eq. 9 as printed, whose limit for :math:`t \to 0` is hard KNN; ``"untempered"``, the
            recursion of the program published in 2018, whose limit is not.
        mask: boolean, true where a candidate may be chosen, broadcastable to ``distances``. Others get exactly 0.
        annealing: of the Concrete distribution, :math:`\lambda > 0`, a number or one value per query.
        generator: source of randomness of the stochastic and the concrete rule.
        running: row j as a soft mask of the first j neighbours instead of the j-th alone. ``"sum"``, the sum of the
            rows so far, :math:`\sum_{i \le j} w^i`, which adds up to j over the candidates; where candidates nearly
            tie, or at high temperatures, single entries may exceed 1. ``"union"``,
            :math:`1 - \prod_{i \le j} (1 - w^i)`, within [0, 1]. For hard weights both are masks of the nearest.

    Returns:
        Weights of shape :math:`(..., k, M)` in the type of ``distances``; float16 and bfloat16 are computed in float32.

    Example:
        >>> d = torch.tensor([0.0, 1.0, 2.0, 5.0])
        >>> select(d, k=2, temperature=0.1).round(decimals=2).tolist()
        [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
        >>> select(d, k=2, temperature=0.1, update="untempered").round(decimals=2).tolist()
        [[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]
    """
    check_choice("rule", rule, Rule)
    check_choice("update", update, Update)
    if not distances.is_floating_point() or distances.dim() == 0:
        raise ValueError(
            f"distances: expected a floating point tensor of shape (..., M), got {distances.dtype} of shape "
            f"{tuple(distances.shape)}"
        )
    dtype = distances.dtype
    d = distances.to(torch.promote_types(dtype, torch.float32))
    t = _per_query("temperature", temperature, d)  # (..., 1)
    lam = _per_query("annealing", annealing, d)  # (..., 1)
    keep = ~torch.isposinf(d)
    if mask is not None:
        keep = keep & _check_mask(mask, d)
    _check_k(k, d.shape[-1])
    if readable(d, keep):
        _check_values(d, keep, k)
    strength = 1 / t if update == "tempered" else torch.ones_like(t)
    w = select_from_logits(_logits(d, keep, t), k, strength, rule=rule, annealing=lam, generator=generator)
    if running is not None:
        check_choice("running", running, Running)
        w = w.cumsum(-2) if running == "sum" else 1 - (1 - w).cumprod(-2)
    return w.to(dtype)


def select_from_logits(
    z: Tensor,
    k: int,
    strength: Tensor,
    *,
    rule: Rule = "continuous",
    annealing: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """:func:`select` without its checks: logits ``z = -d / t`` (..., M), ``strength`` c (..., 1) -> (..., k, M).

    A query with fewer than k candidates gets them again; it must have one, and no NaN.
    """
    strength = strength.clamp(-largest(z.dtype), largest(z.dtype))
    z = z - z.amax(-1, keepdim=True).detach()  # a shift changes nothing but the rounding of what follows
    if rule == "continuous":
        log_w: Tensor = _log_weights()(z, strength, k)
        return log_w.exp()
    if rule == "hard":
        return _one_hot_top(z, k)
    if rule == "straight-through":
        soft: Tensor = _log_weights()(z, strength, k).exp()
        return _one_hot_top(z.detach(), k) + (soft - soft.detach())  # the bracket is 0 to the last bit
    if rule == "stochastic":
        # Drawing without replacement from softmax(z) is taking the k largest of z + Gumbel noise, in order.
        return _one_hot_top(z + _gumbel(z, generator), k)
    rows = []
    for j in range(k):
        noisy = z + _gumbel(z, generator)
        if annealing is not None:  # -inf would have no gradient with respect to the annealing
            none = torch.isneginf(z)
            noisy = (noisy.masked_fill(none, 0) / annealing.clamp(min=_TINY)).clamp(-largest(z.dtype), largest(z.dtype))
            noisy = noisy.masked_fill(none, -torch.inf)
        log_w = _log_softmax(noisy)
        rows.append(log_w.exp())
        if j + 1 < k:
            z = _updated(z, strength, log_one_minus(log_w))
    return torch.stack(rows, -2)  # (..., k, M)


def log_one_minus(log_w: Tensor) -> Tensor:
    """log(1 - w) from log w (..., M) that are normalised over the last dimension, accurate where w rounds to 1."""
    peak = log_w > _PEAK
    others = log_w.masked_fill(peak, -torch.inf)
    return torch.where(peak, _log_sum(others), torch.log1p(-others.exp()))


def _others(log_w: Tensor, peak: Tensor) -> Tensor:
    """Weights without the peak's, (..., M), that sum to 1 again; all 0 where there are no others."""
    others = log_w.masked_fill(peak, -torch.inf)
    return (others - _log_sum(others)).exp()


def _log_sum(x: Tensor) -> Tensor:
    """logsumexp, finite also where nothing is left to sum, (..., M) -> (..., 1)."""
    return torch.logsumexp(x, -1, keepdim=True).clamp(min=-_beyond(x.dtype))


class _LogWeights(torch.autograd.Function):
    """log w^1 .. log w^k of Eqs. 8-10. What it keeps for the backward pass is its own result, k tensors."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, strength: Tensor, k: int) -> Tensor:
        rows = []
        for j in range(k):
            rows.append(_log_softmax(z))
            if j + 1 < k:
                z = _updated(z, strength, log_one_minus(rows[-1]))
        return torch.stack(rows, -2)  # (..., k, M)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        strength, log_weights = ctx.saved_tensors
        g_log_weights = grads[0]
        k = log_weights.shape[-2]
        # Beyond this, the gradient of a jump would overflow on its way back through the steps.
        most = largest(strength.dtype)
        bound = most / strength.abs().clamp(min=1)
        g_z = torch.zeros_like(log_weights[..., 0, :])  # with respect to z^{j+1}
        g_strength = torch.zeros_like(g_z[..., :1])
        for j in reversed(range(k)):
            log_w, g = log_weights[..., j, :], g_log_weights[..., j, :]
            w = log_w.exp()
            g_update = g_z
            if j + 1 < k:
                peak = log_w > _PEAK
                small = w.masked_fill(peak, 0)
                effect = (g_z * log_one_minus(log_w)).clamp(-most, most)
                g_strength = g_strength + effect.sum(-1, keepdim=True)
                h = strength * g_z  # with respect to log(1 - w)
                # d log(1 - w_i) / d log w_i = -w_i / (1 - w_i). For the peak a the quotient may overflow;
                # multiplied out with the softmax's own gradient only w_i / (1 - w_a), a softmax of the rest, remains.
                g = g - h * small / (1 - small)
                pull = (h * w).masked_fill(~peak, 0).sum(-1, keepdim=True)
                g_update = g_z + torch.where(peak, -pull, pull * _others(log_w, peak))
            g_z = (g_update + g - w * g.sum(-1, keepdim=True)).clamp(-bound, bound)
        return g_z, g_strength, None


def largest(dtype: torch.dtype) -> float:
    """The magnitude of logits, strengths and squared distances beyond which they are cut off."""
    return torch.finfo(dtype).max * 1e-8


def _beyond(dtype: torch.dtype) -> float:
    """Beyond :func:`largest`: what was chosen ranks below the rest."""
    return torch.finfo(dtype).max * 1e-2


class _LogWeightsBothWays(_LogWeights):
    """The same with a derivative in forward mode, which PyTorch's compiler does not take."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1], output)
        ctx.save_for_forward(inputs[1], output)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        strength, log_weights = ctx.saved_tensors
        t_z, t_strength = (torch.zeros_like(strength) if t is None else t for t in tangents[:2])
        rows = []
        for j in range(log_weights.shape[-2]):
            log_w = log_weights[..., j, :]
            w, peak = log_w.exp(), log_w > _PEAK
            t_log_w = t_z - (w * t_z).sum(-1, keepdim=True)
            rows.append(t_log_w)
            small, rest = w.masked_fill(peak, 0), _others(log_w, peak)
            t_rest = (rest * t_log_w).sum(-1, keepdim=True)
            t_log_1m_w = torch.where(peak, t_rest, -small / (1 - small) * t_log_w)
            t_z = t_z + t_strength * log_one_minus(log_w) + strength * t_log_1m_w
        return torch.stack(rows, -2)  # (..., k, M)


def _log_weights() -> Callable[..., Tensor]:
    if tracing():
        return _LogWeights.forward  # as plain operations: a trace cannot hold functions
    return (_LogWeightsBothWays if transforms_active() else _LogWeights).apply


def _logits(d: Tensor, keep: Tensor, t: Tensor) -> Tensor:
    """-d / t up to a shift, bounded so that nothing overflows, -inf where a candidate is not kept."""
    none, bound = ~keep, largest(d.dtype)
    nearest = d.detach().masked_fill(none, torch.inf).amin(-1, keepdim=True)
    shifted = (d - nearest).masked_fill(none, 0)  # before the division, which might overflow or make inf / t
    z = (-shifted / t).clamp(min=-bound)
    with torch.no_grad():  # what is cut off keeps its order
        gap = shifted.clamp(max=torch.finfo(d.dtype).max)
        part = gap / gap.amax(-1, keepdim=True).clamp(min=torch.finfo(d.dtype).tiny)
        more = torch.where(z > -bound, 0, part * bound)
    return (z - more).masked_fill(none, -torch.inf)


def _updated(z: Tensor, strength: Tensor, log_1m_w: Tensor) -> Tensor:
    """Eq. 9 in terms of z."""
    bound = _beyond(z.dtype)
    z_next = torch.where(torch.isneginf(z), z, (z + strength * log_1m_w).clamp(-bound, bound))
    return z_next - z_next.amax(-1, keepdim=True).detach()


def _log_softmax(z: Tensor) -> Tensor:
    """log softmax whose largest entry keeps its digits when it is close to 0."""
    top = _is_top(z)
    z_top = z.amax(-1, keepdim=True)
    rest = torch.logsumexp(z.masked_fill(top, -torch.inf), -1, keepdim=True) - z_top  # (..., 1)
    return z - z_top - torch.nn.functional.softplus(rest, threshold=88.0)


def _is_top(x: Tensor) -> Tensor:
    """True at the first largest entry of the last dimension."""
    return x.argmax(-1, keepdim=True) == torch.arange(x.shape[-1], device=x.device)


def _one_hot_top(z: Tensor, k: int) -> Tensor:
    """The k largest, one after the other; where there are fewer, they begin again."""
    order = torch.sort(z, dim=-1, descending=True, stable=True).indices  # (..., M)
    count = (z > -torch.inf).sum(-1, keepdim=True).clamp(min=1)
    index = order.gather(-1, torch.arange(k, device=z.device) % count)  # (..., k)
    return torch.zeros_like(z).unsqueeze(-2).repeat_interleave(k, -2).scatter(-1, index.unsqueeze(-1), 1.0)


def _gumbel(like: Tensor, generator: torch.Generator | None) -> Tensor:
    uniform = torch.rand(like.shape, dtype=like.dtype, device=like.device, generator=generator)
    tiny = torch.finfo(like.dtype).tiny
    exponential = -torch.log(uniform.clamp(min=tiny))
    return -torch.log(exponential.clamp(min=tiny))


def check_choice(name: str, value: object, choices: Any) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, get_args(choices)))}, got {value!r}")


def _per_query(name: str, value: float | Tensor, d: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        x = value.to(d)
    elif isinstance(value, (int, float)):
        x = d.new_full((), value)  # made where d is; as_tensor would carry the number there
    else:
        x = torch.as_tensor(value, dtype=d.dtype, device=d.device)
    try:
        x = x.expand(d.shape[:-1])
    except RuntimeError:
        raise ValueError(
            f"{name}: expected a number or one value per query, shape {tuple(d.shape[:-1])}, got shape {tuple(x.shape)}"
        ) from None
    if readable(x) and not bool((x > 0).all()):
        raise ValueError(f"{name}: expected positive numbers, got {_offender(x, ~(x > 0))}")
    return x.unsqueeze(-1)


def _check_mask(mask: Tensor, d: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        raise ValueError(f"mask: expected a boolean tensor, true where a candidate may be chosen, got {mask.dtype}")
    try:
        return mask.to(d.device).expand(d.shape)
    except RuntimeError:
        raise ValueError(
            f"mask: expected a shape that broadcasts to distances {tuple(d.shape)}, got {tuple(mask.shape)}"
        ) from None


def _check_k(k: int, candidates: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k: expected an integer of at least 1, got {k!r}")
    if not torch.compiler.is_compiling() and not tracing() and k > candidates:
        raise ValueError(f"k: {k} neighbours were asked for, but a query has only {candidates} candidates")


def _check_values(d: Tensor, keep: Tensor, k: int) -> None:
    bad = keep & ~torch.isfinite(d)
    if bool(bad.any()):
        raise ValueError(
            f"distances: expected numbers, got {_offender(d, bad)} in {int(bad.sum())} of {d.numel()} places; "
            "mask those candidates or mend the input"
        )
    left = int(keep.sum(-1).min()) if keep.numel() else k
    if k > left:
        raise ValueError(
            f"k: {k} neighbours were asked for, but a query has only {left} candidates that the mask leaves of "
            f"{d.shape[-1]}"
        )


def _offender(x: Tensor, bad: Tensor) -> float:
    return float(x[bad].flatten()[0])
