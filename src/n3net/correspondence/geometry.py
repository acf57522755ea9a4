"""Two views of a rigid scene: essential matrices, epipolar distances, the weighted eight-point algorithm, pose errors.

Points are calibrated, ``x = (u - c) / f``; a pose maps points of camera 0 to camera 1, ``X1 = R X0 + t``; and
``E = [t]x R`` with ``(x1, 1)^T E (x0, 1) = 0``. Letters: N points, ... any leading shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Array = NDArray[np.float64]

CORRECT_BELOW = 1e-4  # of the squared symmetric epipolar distance of a match, in units of the focal length
DEGENERATE = 1e-9  # relative gap of eigenvalues below which an eigenvector has no direction worth a gradient


def cross_matrix(t: ArrayLike) -> Array:
    """The matrix ``[t]x`` with ``[t]x v = t x v``."""
    x, y, z = np.asarray(t, np.float64)
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])


def relative_pose(r0: ArrayLike, t0: ArrayLike, r1: ArrayLike, t1: ArrayLike) -> tuple[Array, Array]:
    """The pose of camera 1 relative to camera 0, from two with ``x_cam = R x_world + t``; the translation has length 1.

    Two cameras in one place have translation 0.
    """
    rotation = np.asarray(r1, np.float64) @ np.asarray(r0, np.float64).T
    moved, unmoved = np.asarray(t1, np.float64), rotation @ np.asarray(t0, np.float64)
    translation = moved - unmoved
    length = float(np.linalg.norm(translation))
    apart = length > 1e-9 * float(np.linalg.norm(moved) + np.linalg.norm(unmoved))  # by more than rounding
    return rotation, translation / length if apart else np.zeros(3)


def essential(rotation: ArrayLike, translation: ArrayLike) -> Array:
    """``E = [t]x R``, scaled to Frobenius norm 1."""
    e = cross_matrix(translation) @ np.asarray(rotation, np.float64)
    return e / max(float(np.linalg.norm(e)), 1e-300)


def symmetric_epipolar_distance(e: ArrayLike, x0: ArrayLike, x1: ArrayLike) -> Array:
    """Squared distances of both points to their epipolar lines, added: ``(..., 3, 3), (..., N, 2) -> (..., N)``.

    A point in an epipole lies on every line, at distance 0.
    """
    e, x0, x1 = (np.asarray(a, np.float64) for a in (e, x0, x1))
    line1 = x0 @ e[..., :2].swapaxes(-1, -2) + e[..., None, :, 2]  # E x0, (..., N, 3)
    line0 = x1 @ e[..., :2, :] + e[..., None, 2, :]  # E^T x1, (..., N, 3)
    error = ((x1 * line1[..., :2]).sum(-1) + line1[..., 2]) ** 2
    tiny = 1e-300
    return error / ((line1[..., :2] ** 2).sum(-1) + tiny) + error / ((line0[..., :2] ** 2).sum(-1) + tiny)


def labels(e: ArrayLike, x0: ArrayLike, x1: ArrayLike, threshold: float = CORRECT_BELOW) -> NDArray[np.bool_]:
    """Which matches agree with an essential matrix, (N,)."""
    return symmetric_epipolar_distance(e, x0, x1) < threshold


def weighted_eight_point(x0: Tensor, x1: Tensor, weights: Tensor) -> Tensor:
    """The essential matrix with the least sum of ``w (x1^T E x0)^2``, of Frobenius norm 1.

    ``(..., N, 2), (..., N, 2), (..., N) -> (..., 3, 3)`` in float64, of undetermined sign. Its gradient is finite for
    any finite input: directions in which fewer than eight independent equations leave E undetermined contribute none.
    MPS has no float64: there it is computed on the CPU, and comes back in float32.
    """
    if x0.device.type == "mps":
        return weighted_eight_point(x0.cpu(), x1.cpu(), weights.cpu()).float().to(x0.device)
    x0, x1, weights = (a.double() for a in (x0, x1, weights))
    one = torch.ones_like(x0[..., :1])
    rows = torch.cat([x1[..., :1] * x0, x1[..., :1], x1[..., 1:] * x0, x1[..., 1:], x0, one], -1)  # (..., N, 9)
    m = rows.transpose(-1, -2) @ (weights[..., None] * rows)  # (..., 9, 9)
    e: Tensor = _SmallestEigenvector.apply(m)
    return e.unflatten(-1, (3, 3))


class _SmallestEigenvector(torch.autograd.Function):
    """Of symmetric positive semidefinite matrices (..., n, n): the eigenvector v of the smallest eigenvalue, (..., n).

    With the others ``v_i`` and gaps ``g_i = l_i - l``, ``dv = - sum_i v_i (v_i^T dM v) / g_i``: only the gaps to the
    smallest eigenvalue appear, and a sum leaves out those that vanish.
    """

    @staticmethod
    def forward(ctx: Any, m: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(m)
        ctx.save_for_backward(values, vectors)
        out: Tensor = vectors[..., 0].clone()
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        values, vectors = ctx.saved_tensors
        v, others = vectors[..., 0], vectors[..., 1:]
        gaps = values[..., 1:] - values[..., :1]
        kept = gaps > DEGENERATE * values[..., -1:].abs()
        along = (others.transpose(-1, -2) @ grads[0][..., None]).squeeze(-1)  # (..., n - 1)
        along = torch.where(kept, -along / torch.where(kept, gaps, 1), 0)
        g = (others @ along[..., None]) * v[..., None, :]  # (..., n, n)
        return (g + g.transpose(-1, -2)) / 2


def recover_pose(e: ArrayLike, x0: ArrayLike, x1: ArrayLike) -> tuple[Array, Array]:
    """Of the four poses that an essential matrix stands for, the one that sees most points in front of both cameras."""
    x0, x1 = np.asarray(x0, np.float64), np.asarray(x1, np.float64)
    u, _, vt = np.linalg.svd(np.asarray(e, np.float64))
    u, vt = u * np.sign(np.linalg.det(u)), vt * np.sign(np.linalg.det(vt))
    w = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    poses = [(u @ turn @ vt, sign * u[:, 2]) for turn in (w, w.T) for sign in (1.0, -1.0)]
    return max(poses, key=lambda pose: int(in_front(pose[0], pose[1], x0, x1).sum()))


def in_front(rotation: ArrayLike, translation: ArrayLike, x0: ArrayLike, x1: ArrayLike) -> NDArray[np.bool_]:
    """Which points have positive depth in both cameras, (N,)."""
    ones = np.ones((len(np.asarray(x0)), 1))
    a = np.hstack([np.asarray(x0, np.float64), ones]) @ np.asarray(rotation, np.float64).T  # rays of camera 0
    b = np.hstack([np.asarray(x1, np.float64), ones])
    t = np.asarray(translation, np.float64)
    # Depths of least squares: d0 a + t = d1 b.
    aa, bb, ab = (a * a).sum(1), (b * b).sum(1), (a * b).sum(1)
    at, bt = a @ t, b @ t
    d0, d1 = ab * bt - bb * at, aa * bt - ab * at  # times aa bb - ab², which is not negative
    return (d0 > 0) & (d1 > 0)


def pose_error(
    rotation: ArrayLike, translation: ArrayLike, true_rotation: ArrayLike, true_translation: ArrayLike
) -> tuple[float, float]:
    """Degrees between two rotations, 0 to 180, and between two directions of translation without sign, 0 to 90.

    A translation of zero has no direction: where only one of the two has none, they are 90 degrees apart.
    """
    turn = np.asarray(rotation, np.float64) @ np.asarray(true_rotation, np.float64).T
    # atan2 keeps small angles, which arccos of the trace rounds away.
    sine = np.linalg.norm([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    angle = np.degrees(np.arctan2(sine, np.trace(turn) - 1))
    t, u = np.asarray(translation, np.float64), np.asarray(true_translation, np.float64)
    if not t.any() or not u.any():
        return float(angle), 90.0 if t.any() or u.any() else 0.0
    between = np.degrees(np.arctan2(np.linalg.norm(np.cross(t, u)), abs(float(t @ u))))
    return float(angle), float(between)
