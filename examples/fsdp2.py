"""A small FSDP2 job (`fully_shard`) that saves beside forward and backward and resumes bit by bit: gloo on CPUs.

    rankguard run --ranks-per-node 2 --checkpoint-dir STORE --checkpoint-every 5 -- python examples/fsdp2.py --steps 60
    torchrun --nproc-per-node 2 examples/fsdp2.py --steps 60 --local-dir STORE --every 5

Each rank saves its shards as DTensors say; another number of ranks loads them all the same, and then sees other batches.
"""

import time

import torch
import torch.distributed as dist
from common import arguments, batch, exact, tell
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import rankguard


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.down(torch.nn.functional.gelu(self.up(self.norm(inputs))))


def main() -> None:
    args = arguments(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(20, 33), Block(33), Block(33), nn.Linear(33, 7))
    mesh = init_device_mesh("cpu", (world,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    rankguard.init(args.local_dir, checkpoint_every=args.every)
    state = rankguard.torch.state(model, optimizer, losses=[])
    restored = rankguard.restore(state)
    losses = state["losses"]

    for n in range(restored.step + 1 if restored else 1, args.steps + 1):
        inputs, targets = batch(n, rank, world, width=20, classes=7)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        # The copy that was begun after the last step ran beside forward and backward; it ends before the weights change.
        rankguard.finish()
        optimizer.step()
        losses.append(loss.item())
        rankguard.step(n, loss=losses[-1])
        if rankguard.due(n):
            rankguard.begin(state, step=n)
        time.sleep(args.step_ms / 1e3)
    rankguard.finish()

    tell(args.out, rank, restored and restored.step, losses=exact(losses))
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
