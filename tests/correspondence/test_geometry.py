"""Two-view geometry and losses, on cases made by hand and against OpenCV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from n3net.correspondence import geometry
from n3net.correspondence.losses import balanced_cross_entropy, essential_loss, match_weights
from n3net.correspondence.synthetic import rotation_about

SIDEWAYS = (np.eye(3), np.array([1.0, 0, 0]))  # a camera that moved to its left: epipolar lines are rows


def two_views(n: int = 50, noise: float = 0.0, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Rotation, unit translation, and calibrated points of two views."""
    rng = np.random.default_rng(seed)
    axis, t = rng.normal(size=3), rng.normal(size=3)
    rotation = rotation_about(axis / np.linalg.norm(axis), 0.4)
    t /= np.linalg.norm(t)
    points = rng.uniform(-1, 1, (n, 3)) + np.array([0, 0, 4])
    seen = points @ rotation.T + t
    x0, x1 = points[:, :2] / points[:, 2:], seen[:, :2] / seen[:, 2:]
    return rotation, t, x0 + noise * rng.normal(size=x0.shape), x1 + noise * rng.normal(size=x1.shape)


def tensors(*arrays: Any) -> list[Tensor]:
    return [torch.from_numpy(np.asarray(a, np.float64)) for a in arrays]


def test_essential_matrix_of_a_sideways_move() -> None:
    expected = np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0]]) / np.sqrt(2)
    np.testing.assert_allclose(geometry.essential(*SIDEWAYS), expected)


def test_relative_pose_of_two_cameras() -> None:
    rotation, t, _, _ = two_views()
    r0 = rotation_about(np.array([0.0, 1, 0]), 1.1)
    t0 = np.array([3.0, 2, 1])
    found = geometry.relative_pose(r0, t0, rotation @ r0, rotation @ t0 + 5 * t)
    np.testing.assert_allclose(found[0], rotation, atol=1e-12)
    np.testing.assert_allclose(found[1], t, atol=1e-12)
    assert not geometry.relative_pose(r0, t0, r0, t0)[1].any()


def test_distance_to_rows() -> None:
    x0 = np.array([[0.3, 0.1], [0.3, 0.1], [0.3, 0.1]])
    x1 = np.array([[-0.2, 0.1], [0.9, 0.11], [0.0, 0.4]])
    distance = geometry.symmetric_epipolar_distance(geometry.essential(*SIDEWAYS), x0, x1)
    np.testing.assert_allclose(distance, [0, 2 * 0.01**2, 2 * 0.3**2], atol=1e-18)
    e = geometry.essential(*SIDEWAYS)
    assert geometry.labels(e, x0, x1, 2.1e-4).tolist() == [True, True, False]
    assert geometry.labels(e, x0, x1).tolist() == [True, False, False]  # 2e-4 is more than 1e-4


def test_distances_in_batches_and_in_the_epipole() -> None:
    forward = geometry.essential(np.eye(3), [0, 0, 1])
    assert geometry.symmetric_epipolar_distance(forward, [[0, 0]], [[0, 0]]).tolist() == [0]
    e = np.stack([forward, geometry.essential(*SIDEWAYS)])
    x = np.random.default_rng(0).normal(size=(2, 2, 7, 2))
    both = geometry.symmetric_epipolar_distance(e, x[0], x[1])
    assert both.shape == (2, 7)
    np.testing.assert_allclose(both[1], geometry.symmetric_epipolar_distance(e[1], x[0, 1], x[1, 1]))


def test_distance_to_the_lines_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    rotation, t, x0, x1 = two_views(noise=0.05)
    e = geometry.essential(rotation, t)
    total = 0
    for x, y, which in ((x0, x1, 1), (x1, x0, 2)):
        lines = cv2.computeCorrespondEpilines(x[:, None], which, e)[:, 0]  # of unit normal
        total = total + ((y * lines[:, :2]).sum(1) + lines[:, 2]) ** 2
    np.testing.assert_allclose(geometry.symmetric_epipolar_distance(e, x0, x1), total, rtol=1e-6)


@pytest.mark.parametrize("weights", [np.ones(50), np.linspace(0.1, 1, 50)])
def test_eight_points_find_the_essential_matrix(weights: Any) -> None:
    rotation, t, x0, x1 = two_views()
    found = geometry.weighted_eight_point(*tensors(x0, x1, weights)).numpy()
    truth = geometry.essential(rotation, t)
    np.testing.assert_allclose(found * np.sign((found * truth).sum()), truth, atol=1e-9)


def test_weights_leave_out_what_is_wrong() -> None:
    rotation, t, x0, x1 = two_views()
    x1[20:] = 0.3
    weights = np.arange(50) < 20
    found = geometry.weighted_eight_point(*tensors(x0, x1, weights)).numpy()
    truth = geometry.essential(rotation, t)
    np.testing.assert_allclose(found * np.sign((found * truth).sum()), truth, atol=1e-9)


def test_gradient_is_that_of_eigh() -> None:
    _, _, x0, x1 = two_views(12, noise=0.02)
    x0, x1, w = tensors(x0, x1, np.linspace(0.2, 1, 12))
    w.requires_grad_()
    target = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = geometry.weighted_eight_point(x0, x1, w)
    (g,) = torch.autograd.grad((ours * target).sum(), w)
    one = torch.ones(12, 1, dtype=torch.float64)
    rows = torch.cat([x1[:, :1] * x0, x1[:, :1], x1[:, 1:] * x0, x1[:, 1:], x0, one], 1)
    theirs = torch.linalg.eigh(rows.T @ (w[:, None] * rows))[1][:, 0].view(3, 3)
    (expected,) = torch.autograd.grad((theirs * target).sum(), w)
    sign = torch.sign((ours * theirs).sum())
    torch.testing.assert_close(g, sign * expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("case", ["no weight", "five points", "one point many times", "a line", "zero"])
def test_gradient_is_finite_on_degenerate_input(case: str) -> None:
    _, _, x0, x1 = two_views(20)
    w = np.ones(20)
    if case == "no weight":
        w[:] = 0
    elif case == "five points":
        w[5:] = 0
    elif case == "one point many times":
        x0[:], x1[:] = x0[0], x1[0]
    elif case == "a line":
        x0[:, 1] = x1[:, 1] = 0
    else:
        x0[:] = x1[:] = 0
    inputs = [t.requires_grad_() for t in tensors(x0, x1, w)]
    e = geometry.weighted_eight_point(*inputs)
    for g in torch.autograd.grad((e * torch.arange(9.0).view(3, 3)).sum(), inputs):
        assert g.isfinite().all()


@pytest.mark.parametrize("seed", range(5))
def test_pose_is_recovered(seed: int) -> None:
    rotation, t, x0, x1 = two_views(seed=seed)
    for sign in (1, -1):
        found = geometry.recover_pose(sign * geometry.essential(rotation, t), x0, x1)
        assert max(geometry.pose_error(*found, rotation, t)) < 1e-6
        assert found[1] @ t > 0  # in front of the cameras, so the sign is known
    assert geometry.in_front(rotation, t, x0, x1).all()
    assert not geometry.in_front(rotation, -t, x0, x1).any()


def test_pose_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    _, _, x0, x1 = two_views(noise=0.002)
    e = geometry.weighted_eight_point(*tensors(x0, x1, np.ones(50))).numpy()
    count, rotation, t, _ = cv2.recoverPose(e, x0, x1)
    found = geometry.recover_pose(e, x0, x1)
    assert max(geometry.pose_error(*found, rotation, t.ravel())) < 1e-5
    assert geometry.in_front(*found, x0, x1).sum() == count == 50


@pytest.mark.parametrize("degrees", [0.0, 1e-5, 3.0, 90.0, 179.9])
def test_angles(degrees: float) -> None:
    rotation, t, _, _ = two_views()
    axis = np.array([0.6, 0, 0.8])
    turned = rotation_about(axis, np.radians(degrees))
    assert geometry.pose_error(turned @ rotation, t, rotation, t)[0] == pytest.approx(degrees, rel=1e-6, abs=1e-9)
    across = np.cross(t, [1.0, 2, 3])
    moved = rotation_about(across / np.linalg.norm(across), np.radians(degrees)) @ t
    without_sign = min(degrees, 180 - degrees)
    assert geometry.pose_error(rotation, moved, rotation, t)[1] == pytest.approx(without_sign, rel=1e-6, abs=1e-9)
    assert geometry.pose_error(rotation, -moved, rotation, t)[1] == pytest.approx(without_sign, rel=1e-6, abs=1e-9)


def test_both_kinds_of_matches_weigh_the_same() -> None:
    logits = torch.tensor([[0.0, 2.0, -1.0, 3.0]], dtype=torch.float64)
    labels = torch.tensor([[True, False, False, False]])
    wrong = [np.log1p(np.exp(z)) for z in (2.0, -1.0, 3.0)]
    assert balanced_cross_entropy(logits, labels).item() == pytest.approx(0.5 * np.log(2) + 0.5 * np.mean(wrong))
    more = balanced_cross_entropy(logits, labels, wrong=0.8).item()
    assert more == pytest.approx(0.2 * np.log(2) + 0.8 * np.mean(wrong))
    only = balanced_cross_entropy(logits, torch.zeros_like(labels)).item()
    assert only == pytest.approx(0.5 * np.mean([np.log(2), *wrong]))


def test_masked_matches_have_no_loss() -> None:
    logits = torch.tensor([[0.5, -2.0, 99.0]], requires_grad=True)
    labels, mask = torch.tensor([[True, False, False]]), torch.tensor([[True, True, False]])
    loss = balanced_cross_entropy(logits, labels, mask)
    torch.testing.assert_close(loss, balanced_cross_entropy(logits[:, :2], labels[:, :2]))
    assert torch.autograd.grad(loss.sum(), logits)[0][0, 2] == 0
    assert match_weights(logits, mask).tolist() == [[pytest.approx(np.tanh(0.5)), 0, 0]]


def test_essential_loss_does_not_see_the_sign() -> None:
    rotation, t, x0, x1 = two_views()
    matches = torch.cat(tensors(x0, x1), 1)[None]
    truth = torch.from_numpy(geometry.essential(rotation, t))[None]
    weights = torch.ones(1, 50, dtype=torch.float64)
    for sign in (1, -1):
        assert essential_loss(matches, weights, sign * truth).item() < 1e-12
    other = torch.from_numpy(geometry.essential(*SIDEWAYS))[None]
    cosine = abs((truth * other).sum().item())
    assert essential_loss(matches, weights, other).item() == pytest.approx(2 - 2 * cosine, rel=1e-6)


def test_essential_loss_needs_eight_matches() -> None:
    rotation, t, x0, x1 = two_views(noise=0.01)
    matches = torch.cat(tensors(x0, x1), 1)[None]
    truth = torch.from_numpy(geometry.essential(rotation, t))[None]
    for count, learns in ((7, False), (9, True)):
        weights = (torch.arange(50)[None] < count).double().requires_grad_()
        loss = essential_loss(matches, weights, truth)
        (g,) = torch.autograd.grad(loss.sum(), weights)
        assert g.isfinite().all()
        assert bool(g.any()) == learns == bool(loss > 0)


def test_no_translation_is_no_direction() -> None:
    turn, t, none = np.eye(3), np.array([1.0, 0, 0]), np.zeros(3)
    assert geometry.pose_error(turn, none, turn, t) == (0.0, 90.0)
    assert geometry.pose_error(turn, t, turn, none) == (0.0, 90.0)
    assert geometry.pose_error(turn, none, turn, none) == (0.0, 0.0)
