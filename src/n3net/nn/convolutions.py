"""Layers that compute through :mod:`n3net.kernel.convolution`: while they learn, and prepared for inference."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from n3net import kernel
from n3net.kernel import batch_norm, convolution

LEAST_CHANNELS = 8  # on the wider side; below, PyTorch is as fast


class Conv3x3(nn.Conv2d):
    """An ``nn.Conv2d`` of 3 x 3 that learns through :func:`n3net.kernel.convolution.conv3x3`, where the kernel can."""

    def forward(self, input: Tensor) -> Tensor:
        plain = not torch.is_grad_enabled() or torch.is_autocast_enabled(input.device.type)
        if plain or convolution.why_not(input, self.weight):
            return super().forward(input)
        return convolution.conv3x3(input, self.weight, self.bias)


class NormReLU(nn.BatchNorm2d):
    """An ``nn.BatchNorm2d`` and the ReLU behind it that learn through :mod:`n3net.kernel.batch_norm` where it can."""

    def forward(self, input: Tensor) -> Tensor:
        plain = not torch.is_grad_enabled() or torch.is_autocast_enabled(input.device.type)
        if plain or batch_norm.why_not(input, self.weight):
            return super().forward(input).relu_()
        batch = self.training
        if batch:
            mean, var = batch_norm.statistics(input)
            self._remember(mean, var, input.numel() // input.shape[1])
        else:
            mean, var = self.running_mean, self.running_var  # type: ignore[assignment]
        return batch_norm.normalize(input, self.weight, self.bias, mean, var, self.eps, relu=True, batch=batch)

    def _remember(self, mean: Tensor, var: Tensor, count: int) -> None:
        own: Any = self  # accelerate() takes only norms that have all of these
        own.num_batches_tracked.add_(1)
        own.running_mean.lerp_(mean, own.momentum)
        own.running_var.lerp_(var * (count / max(count - 1, 1)), own.momentum)


def accelerate(model: nn.Module, norms: bool = True) -> int:
    """Let a model learn through the compiled kernel: its 3 x 3 convolutions, and batch norms with a ReLU behind them.

    Names and places of the weights stay. How many layers there are.
    """
    count = 0
    for module in model.modules():
        if type(module) is nn.Conv2d and _suits(module):
            module.__class__ = Conv3x3
            count += 1
        if norms and isinstance(module, nn.Sequential):
            for (_, norm), (name, relu) in itertools.pairwise(list(module.named_children())):
                if type(norm) is nn.BatchNorm2d and type(relu) is nn.ReLU and _plain(norm):
                    norm.__class__ = NormReLU
                    setattr(module, name, nn.Identity())
                    count += 1
    return count


class FusedConv3x3(nn.Conv2d):
    """A convolution for inference, its weights transformed once, with the ReLU behind it.

    Where the kernel cannot compute (another device or type, gradients, a program that is exported) PyTorch does.
    """

    packed: Tensor

    def __init__(self, layer: nn.Conv2d, relu: bool = False) -> None:
        nn.Module.__init__(self)
        self.__dict__.update({name: value for name, value in vars(layer).items() if name != "training"})
        self.relu = relu
        self.register_buffer("packed", convolution.pack(layer.weight.detach()), persistent=False)
        self.eval()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FusedConv3x3:
        """Packed weights are not converted to another type or device, but made again."""
        super()._apply(fn, recurse)
        self.packed = self.packed if kernel.why_not(self.weight) else convolution.pack(self.weight.detach())
        return self

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, relu={self.relu}"

    def forward(self, input: Tensor) -> Tensor:
        if self.why_not(input) is None:
            return convolution.fused(input, [self.ready])
        out = super().forward(input)
        return out.relu() if self.relu else out

    @property
    def ready(self) -> convolution.Layer:
        """What the kernel needs of this layer."""
        return convolution.Layer(self.packed, self.bias, self.in_channels, self.out_channels, self.relu)

    def why_not(self, input: Tensor) -> str | None:
        """Why the kernel cannot compute this, or None."""
        if torch.is_grad_enabled() and (input.requires_grad or self.weight.requires_grad):
            return "it has no gradient"
        if torch.is_autocast_enabled(input.device.type):
            return "autocast chooses the type"
        return convolution.why_not(input, self.weight)


class FusedSequential(nn.Sequential):
    """Layers of :class:`FusedConv3x3` and identities, computed in one sweep."""

    def forward(self, input: Tensor, add: Tensor | None = None) -> Tensor:
        """``add`` (B, A, H, W) is added to the first A channels of the result."""
        if self.why_not(input) is None:
            return convolution.fused(input, [layer.ready for layer in self.convolutions], add)
        out: Tensor = super().forward(input)
        if add is None:
            return out
        return torch.cat([out[:, : add.shape[1]] + add, out[:, add.shape[1] :]], 1)

    def why_not(self, input: Tensor) -> str | None:
        """Why the kernel cannot compute this, or None."""
        return next((layer.why_not(input) for layer in self.convolutions), "there is no convolution")

    @property
    def convolutions(self) -> list[FusedConv3x3]:
        return [layer for layer in self if isinstance(layer, FusedConv3x3)]


def fuse(model: nn.Module) -> nn.Module:
    """The model with its 3 x 3 convolutions and the ReLUs behind them as :class:`FusedConv3x3`, for inference on a CPU.

    Layers keep their places, so that what reads the layers of a model still finds them; a ReLU that has become part of
    the convolution before it leaves an identity.
    """
    if kernel.instruction_set() is None:
        return model
    for parent in list(model.modules()):
        children = list(parent.named_children())
        for i, (name, layer) in enumerate(children):
            layer = _as_convolution(layer)
            if not isinstance(layer, nn.Conv2d) or not _suits(layer) or kernel.why_not(layer.weight):
                continue
            relu = _following_relu(children[i + 1 :]) if isinstance(parent, nn.Sequential) else None
            setattr(parent, name, FusedConv3x3(layer, relu is not None))
            if relu is not None:
                setattr(parent, relu, nn.Identity())
        if isinstance(parent, nn.Sequential) and all(isinstance(m, FusedConv3x3 | nn.Identity) for m in parent):
            parent.__class__ = FusedSequential
    return model


def _plain(norm: nn.BatchNorm2d) -> bool:
    return norm.affine and norm.track_running_stats and norm.momentum is not None


def _following_relu(children: list[tuple[str, nn.Module]]) -> str | None:
    """The name of a ReLU that comes next, identities aside."""
    for name, layer in children:
        if not isinstance(layer, nn.Identity):
            return name if isinstance(layer, nn.ReLU) else None
    return None


def _as_convolution(layer: nn.Module) -> nn.Module:
    """A transposed convolution without stride is a convolution with its weights turned."""
    if not isinstance(layer, nn.ConvTranspose2d) or any(layer.output_padding):
        return layer
    same = (layer.kernel_size, layer.stride, layer.padding, layer.dilation) == ((3, 3), (1, 1), (1, 1), (1, 1))
    if not same or layer.groups != 1:
        return layer
    out = nn.Conv2d(layer.in_channels, layer.out_channels, 3, padding=1, bias=layer.bias is not None, device="meta")
    out.weight = nn.Parameter(layer.weight.detach().flip(2, 3).transpose(0, 1).contiguous(), requires_grad=False)
    out.bias = layer.bias
    return out


def _suits(layer: nn.Conv2d) -> bool:
    shape = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.padding_mode)
    plain = ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros")
    return shape == plain and max(layer.in_channels, layer.out_channels) >= LEAST_CHANNELS
