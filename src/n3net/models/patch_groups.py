"""Groups of similar patches around every pixel, as NLNet and UNLNet use them: found, summed over, and spread again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

BAND = 2**22  # distances that are compared at a time


class PatchGroups(nn.Module):
    """For each pixel the patch around it and the ``group - 1`` patches nearby that differ least from it.

    The image is mirrored by half a patch. Squared differences count, over all channels; patches that would leave the
    mirrored image do not take part.

    Args:
        patch_size: odd.
        group: patches of a group, the first of them the pixel's own.
        radius: rows and columns that the search goes to each side.

    Shape:
        (B, C, H, W) -> (B, group, H, W), int16: where each member is, as ``(dy + radius) * side + dx + radius`` with
        ``side = 2 * radius + 1``.
    """

    def __init__(self, patch_size: int = 7, group: int = 8, radius: int = 15) -> None:
        super().__init__()
        if patch_size < 1 or patch_size % 2 == 0:
            raise ValueError(f"patch_size: expected an odd number, got {patch_size}")
        if not 1 <= group <= (radius + 1) ** 2:
            raise ValueError(f"group: expected 1 to {(radius + 1) ** 2}, as many as a corner has, got {group}")
        if radius > 90:
            raise ValueError(f"radius: expected at most 90, got {radius}")
        self.patch_size, self.group, self.radius = patch_size, group, radius

    @property
    def reach(self) -> int:
        """How many pixels away an input pixel may influence an output pixel."""
        return self.radius + self.patch_size // 2

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        side = 2 * self.radius + 1
        own = torch.full((len(x), 1, *x.shape[-2:]), side * side // 2, dtype=torch.int16, device=x.device)
        if self.group == 1:
            return own
        return torch.cat([own, torch.stack([self._nearest(image) for image in x.float()])], 1)  # (B, group, H, W)

    def _nearest(self, image: Tensor) -> Tensor:
        """Of one image (C, H, W), all members of the groups but the first: (group - 1, H, W)."""
        radius, patch, (height, width) = self.radius, self.patch_size, image.shape[-2:]
        side = 2 * radius + 1
        margin = (radius,) * 4
        padded = F.pad(mirrored(image[None], patch // 2)[0], margin)  # (C, H + P - 1 + 2 R, W + P - 1 + 2 R)
        inside = F.pad(torch.ones(1, height, width, dtype=torch.bool, device=image.device), margin)[0]
        out = torch.empty(self.group - 1, height, width, dtype=torch.int16, device=image.device)
        rows = max(1, BAND // (side * side * width))
        for top in range(0, height, rows):
            count = min(rows, height - top)
            distances = image.new_empty(side, side, count, width)
            own = padded[:, None, top + radius : top + radius + count + patch - 1, radius : radius + width + patch - 1]
            for dy in range(side):
                others = padded[:, top + dy : top + dy + count + patch - 1].unfold(2, width + patch - 1, 1)
                squares = (own - others.transpose(1, 2)).square_().sum(0)  # (side, rows + P - 1, W + P - 1)
                distances[dy] = _box(_box(squares, patch, 2), patch, 1)
                there = inside[top + dy : top + dy + count].unfold(1, width, 1).transpose(0, 1)  # (side, rows, W)
                distances[dy].masked_fill_(~there, torch.inf)
            distances[radius, radius] = torch.inf  # the patch itself has its place already
            nearest = distances.flatten(0, 1).topk(self.group - 1, dim=0, largest=False).indices
            out[:, top : top + count] = nearest.to(torch.int16)  # (group - 1, rows, W)
        return out


def _box(x: Tensor, size: int, dim: int) -> Tensor:
    """Sums of ``size`` neighbours along a dimension."""
    count = x.shape[dim] - size + 1
    out = x.narrow(dim, 0, count).clone()
    for i in range(1, size):
        out += x.narrow(dim, i, count)
    return out


class Members:
    """Where the members of all groups of a batch are, made once and used by all filters.

    Args:
        codes: of :class:`PatchGroups`, (B, group, H, W).
        radius: of the search.
    """

    def __init__(self, codes: Tensor, radius: int) -> None:
        batch, group, height, width = codes.shape
        side, count = 2 * radius + 1, batch * height * width
        code = codes.permute(0, 2, 3, 1).int()  # (B, H, W, group)
        y = torch.arange(height, dtype=torch.int32, device=codes.device).view(-1, 1, 1)
        x = torch.arange(width, dtype=torch.int32, device=codes.device).view(1, -1, 1)
        first = torch.arange(batch, dtype=torch.int32, device=codes.device).view(-1, 1, 1, 1) * (height * width)
        # in a part of an image, members of the outermost groups may lie outside; what these give is not used
        row = (y + torch.div(code, side, rounding_mode="floor") - radius).clamp(0, height - 1)
        column = (x + code % side - radius).clamp(0, width - 1)
        self.index = (first + row * width + column).reshape(count, group)  # (N, group)
        order = self.index.flatten().argsort(stable=True)  # groups that a pixel is a member of, pixel by pixel
        self.groups = torch.div(order, group, rounding_mode="floor").int()  # (N group,)
        self.places = order % group
        counts = torch.bincount(self.index.flatten(), minlength=count)
        self.starts = (counts.cumsum(0) - counts).int()  # (N,)

    def gather(self, x: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum over each group, weights (group,): (N, F) -> (N, F)."""
        return _Sum.apply(x, weights, self, False)

    def spread(self, x: Tensor, weights: Tensor) -> Tensor:
        """The adjoint of :meth:`gather`: each group gives its members what it has, weighted."""
        return _Sum.apply(x, weights, self, True)


class _Sum(torch.autograd.Function):
    """A sum over the members of groups, or over the groups of members; the gradient of each is the other."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, members: Members, spread: bool) -> Tensor:
        ctx.save_for_backward(x, weights)
        ctx.members, ctx.spread = members, spread
        return _summed(x, weights, members, spread)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weights = ctx.saved_tensors
        own, others = (x, gradient) if ctx.spread else (gradient, x)
        places = ctx.members.index.unbind(1)
        for_weights = torch.stack([(own * others.index_select(0, place)).sum() for place in places])
        return _summed(gradient.contiguous(), weights, ctx.members, not ctx.spread), for_weights, None, None


def _summed(x: Tensor, weights: Tensor, members: Members, spread: bool) -> Tensor:
    weights, x = weights.detach(), x.detach()  # with gradients of the weights, embedding_bag is many times slower
    if spread:
        return F.embedding_bag(
            members.groups, x, members.starts, mode="sum", per_sample_weights=weights[members.places]
        )
    return F.embedding_bag(members.index, x, mode="sum", per_sample_weights=weights.expand(members.index.shape))


def mirrored(x: Tensor, margin: int) -> Tensor:
    """An image (B, C, H, W) continued beyond its border, the pixels at the border twice."""
    rows, columns = (_mirror(side, margin, x.device) for side in x.shape[-2:])
    return x[..., rows, :][..., columns]


def folded(x: Tensor, margin: int) -> Tensor:
    """The adjoint of :func:`mirrored`: what lies beyond the border is added to the pixels it came from."""
    height, width = (side - 2 * margin for side in x.shape[-2:])
    rows, columns = (_mirror(side, margin, x.device) for side in (height, width))
    x = x.new_zeros(*x.shape[:2], height, x.shape[3]).index_add(2, rows, x)  # (B, C, H, W + 2 margin)
    return x.new_zeros(*x.shape[:3], width).index_add(3, columns, x)  # (B, C, H, W)


def _mirror(side: int, margin: int, device: torch.device) -> Tensor:
    place = torch.arange(-margin, side + margin, device=device) % (2 * side)
    return torch.where(place < side, place, 2 * side - 1 - place)


class RadialShrinkage(nn.Module):
    """A function for each filter, a mixture of Gaussians: sum_j w_j exp(-(z - mu_j)^2 / (2 spacing^2)).

    As the released programs do, it is read from a table with linear interpolation.

    Args:
        filters: how many functions.
        limit: z is clipped to [-limit, limit], and the centres mu_j lie there, ``spacing`` apart.
        spacing: of the centres, and standard deviation of the Gaussians.
        step: of the table.
        start: the function that it has at first, z -> value.
    """

    centers: Tensor
    basis: Tensor

    def __init__(self, filters: int, limit: float, spacing: float, step: float, start: Tensor) -> None:
        super().__init__()
        self.limit, self.step, self.origin = limit, step, -limit - spacing
        count = round(2 * (limit + spacing) / step) + 1
        grid = self.origin + step * torch.arange(count, dtype=torch.float64)  # (T,)
        centers = radial_centers(limit, spacing)  # (J,)
        basis = torch.exp(-((grid - centers[:, None]) ** 2) / (2 * spacing**2))  # (J, T)
        self.register_buffer("basis", basis.float(), persistent=False)
        self.weights = nn.Parameter((start / (2 * torch.pi) ** 0.5).float().expand(filters, -1).clone())  # (F, J)

    def forward(self, z: Tensor) -> Tensor:
        """(N, F) -> (N, F)."""
        table = self.weights @ self.basis  # (F, T)
        place = (z.clamp(-self.limit, self.limit) - self.origin) / self.step
        left = place.detach().floor()
        index = left.int() + torch.arange(len(table), dtype=torch.int32, device=z.device) * table.shape[1]  # (N, F)
        values, steps = table.flatten(), F.pad(table.diff(dim=1), (0, 1)).flatten()
        flat = index.flatten()
        low, more = (t.index_select(0, flat).view(z.shape) for t in (values, steps))
        return low + (place - left) * more


def radial_centers(limit: float, spacing: float) -> Tensor:
    """Where the Gaussians of a :class:`RadialShrinkage` are."""
    return -limit + spacing * torch.arange(round(2 * limit / spacing) + 1, dtype=torch.float64)


def removing(limit: float, spacing: float, width: float, gain: float) -> Tensor:
    """Values at the centres of a function that lets small coefficients pass, to be subtracted, and no large ones."""
    z = radial_centers(limit, spacing)
    return gain * z * torch.exp(-(z**2) / (2 * width**2))


def rows_of(x: Tensor) -> Tensor:
    """(B, F, H, W) -> (B H W, F)."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def image_of(rows: Tensor, batch: int, height: int, width: int) -> Tensor:
    """(B H W, F) -> (B, F, H, W)."""
    return rows.view(batch, height, width, -1).permute(0, 3, 1, 2)
