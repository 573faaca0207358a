"""Linear layers in 8-bit integers: faster on CPU, and lossy.

Weights have one scale per output, computed once. Activations have one scale per token, computed at run time, so that
a sentence's vector does not depend on the rest of the batch. Processors without VNNI add two products in 16 bits and
clip larger sums; with the default model that costs less accuracy than 7-bit activations would.

Process-wide state: `int8_linear` sets torch's quantization engine to FBGEMM, which stays set.
"""

import warnings

import torch
from torch import Tensor

from sbert_core.encoder.packed_transformer import Linear
from sbert_core.errors import ModelError

# The output of a GELU is at least -0.17. Divided by 2.72 or more that is at least -1/16, so 16 of the 256 levels are
# enough below zero, and 240 remain for the positive side with nearly all of the values.
_GELU_MIN_SCALE = 2.72
_GELU_ZERO_LEVEL = 16
_MIN_SCALE = 1e-12  # of a row of zeros


def int8_linear(weight: Tensor, bias: Tensor, after_gelu: bool) -> Linear:
    """Makes a linear layer with 8-bit weights (out, in) and activations; if `after_gelu`, it overwrites its input."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        raise ModelError("precision='int8' needs torch with FBGEMM (x86-64 builds have it): use 'float32'")
    torch.backends.quantized.engine = "fbgemm"
    scales = weight.abs().amax(dim=1).clamp(min=_MIN_SCALE) / 127
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():
        # torch plans to remove quantized tensors; constraints.txt pins the tested version.
        warnings.filterwarnings("ignore", message=".*quantized tensor creation.*")
        quantized = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(quantized, None)
    multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

    def symmetric(tokens: Tensor) -> Tensor:
        scale = torch.maximum(tokens.amax(dim=1, keepdim=True), tokens.amin(dim=1, keepdim=True).neg_())
        scale.clamp_(min=_MIN_SCALE)
        product: Tensor = multiply(tokens / scale, 1 / 127, 128, packed)
        return torch.addcmul(bias, product, scale, out=product)

    def one_sided(tokens: Tensor) -> Tensor:
        scale = tokens.amax(dim=1, keepdim=True).clamp_(min=_GELU_MIN_SCALE)
        product: Tensor = multiply(tokens.div_(scale), 1 / (255 - _GELU_ZERO_LEVEL), _GELU_ZERO_LEVEL, packed)
        return torch.addcmul(bias, product, scale, out=product)

    return one_sided if after_gelu else symmetric
