"""Linear layers in 8-bit integers: faster on CPU, and lossy.

Weights have one scale per output, found once. Activations have one scale per token, found as they come, so
that a sentence's vector does not depend on its neighbours in the batch. Processors without VNNI add two products up
in 16 bits and clip what goes past them; with the default model that costs less than 7-bit activations would.
"""

import warnings

import torch
from torch import Tensor

from sbert_core.encoder.packed_transformer import Linear
from sbert_core.errors import ModelError

# A GELU never goes below -0.17. Scaled by at least 2.72 that is -1/16, so with 16 of the 256 levels below zero
# the other 240 are left for the positive side, where nearly all of its output lies.
_GELU_LEAST_PEAK, _GELU_ZERO = 2.72, 16
_TINY = 1e-12


def int8_linear(weight: Tensor, bias: Tensor, after_gelu: bool) -> Linear:
    """A linear layer with 8-bit weights (out, in) and activations; if `after_gelu`, it overwrites its input."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        raise ModelError("precision='int8' needs torch with FBGEMM (x86-64 builds have it): use 'float32'")
    torch.backends.quantized.engine = "fbgemm"
    scales = weight.abs().amax(dim=1).clamp(min=_TINY) / 127
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():
        # torch means to drop quantized tensors one day; constraints.txt says which torch this is tested with.
        warnings.filterwarnings("ignore", message=".*quantized tensor creation.*")
        quantized = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(quantized, None)
    multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

    def symmetric(tokens: Tensor) -> Tensor:
        peaks = torch.maximum(tokens.amax(dim=1, keepdim=True), tokens.amin(dim=1, keepdim=True).neg_())
        peaks.clamp_(min=_TINY)
        product: Tensor = multiply(tokens / peaks, 1 / 127, 128, packed)
        return torch.addcmul(bias, product, peaks, out=product)

    def one_sided(tokens: Tensor) -> Tensor:
        peaks = tokens.amax(dim=1, keepdim=True).clamp_(min=_GELU_LEAST_PEAK)
        product: Tensor = multiply(tokens.div_(peaks), 1 / (255 - _GELU_ZERO), _GELU_ZERO, packed)
        return torch.addcmul(bias, product, peaks, out=product)

    return one_sided if after_gelu else symmetric
