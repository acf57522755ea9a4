"""An N3 block in a network of your own, trained in under a minute: noisy stripes, again and again.

Half of the convolutions' view of a thin stripe is noise, but the same stripe is found elsewhere in the image.
Prints the error as it falls and writes denoise_stripes.png: noisy, denoised, clean.
"""

import torch
from PIL import Image
from torch import nn

from n3net.nn import N3Block2d

torch.manual_seed(0)


def stripes(count: int, size: int = 40) -> torch.Tensor:
    """Images of stripes of random width and direction, (count, 1, size, size)."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    angle, width = torch.rand(count, 1, 1) * 3.14, 1.5 + torch.rand(count, 1, 1) * 1.5
    return (0.5 + 0.4 * torch.sin((x * angle.cos() + y * angle.sin()) / width * 3.14 / 2).sign())[:, None]


net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), N3Block2d(channels=8, k=3, patch_size=6, stride=3, window=9, features=16),
    nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 3, padding=1),
)  # fmt: skip
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(201):
    clean = stripes(8)
    noisy = clean + 0.4 * torch.randn_like(clean)
    loss = (net(noisy) - clean).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:3d}: mean squared error {loss.item():.4f} (of the noisy images: {0.4**2:.4f})", flush=True)

clean = stripes(1, 80)
noisy = clean + 0.4 * torch.randn_like(clean)
with torch.no_grad():
    row = torch.cat([noisy, net.eval()(noisy), clean], -1)[0, 0]
Image.fromarray((row.clamp(0, 1) * 255).byte().numpy()).resize((720, 240), Image.Resampling.NEAREST).save(
    "denoise_stripes.png"
)
print("noisy, denoised, clean: denoise_stripes.png")
