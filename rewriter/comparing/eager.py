"""A torch module, run eagerly. It stays in the caller's process, where it was made: its memory is not told."""

from __future__ import annotations

import numpy as np

from rewriter.comparing.runners import Runner


class TorchEager(Runner):
    """A module that takes the model's inputs by position and gives its outputs, also nested ones, in the same order."""

    def __init__(self, module):
        super().__init__()
        self._module = module

    def prepare(self) -> str:
        import torch

        self._torch, self._threads, self._training = torch, torch.get_num_threads(), self._module.training
        torch.set_num_threads(self.options["threads"])
        self._module.eval()
        return f"torch {torch.__version__.split('+')[0]}"

    def close(self) -> None:
        """Leave torch and the module as they were."""
        self._torch.set_num_threads(self._threads)
        self._module.train(self._training)

    def create(self) -> None:
        return None

    def feed(self, arrays: dict[str, np.ndarray]) -> None:
        self._arguments = [self._tensor(array) for array in arrays.values()]

    def run(self) -> object:
        with self._torch.no_grad():
            return self._module(*self._arguments)

    def fetch(self, outputs) -> dict[str, np.ndarray]:
        flat = self._torch.utils._pytree.tree_leaves(outputs)
        return {str(index): self._array(tensor) for index, tensor in enumerate(flat)}

    def memory(self) -> int | None:
        return None

    def _tensor(self, array: np.ndarray):
        if array.dtype.name == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16).copy()).view(self._torch.bfloat16)
        return self._torch.from_numpy(array.copy())

    def _array(self, tensor) -> np.ndarray:
        tensor = tensor.detach().cpu()
        return (tensor.float() if tensor.dtype is self._torch.bfloat16 else tensor).numpy()
