#!/usr/bin/env python3
"""Makes tests/fixtures/quantised: weights in few bits, each with its values by another implementation.

    make_quantised_fixtures.py          needs torch, transformers and compressed-tensors (0.20)

Each file has tensors that begin with "m.weight", as a released folder would, and "expected", what the library that wrote
them makes of them in f32. build/formats_test --gtest_filter='Quantised*' reads them.
"""

import pathlib

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/quantised"


def write(name, tensors, expected):
    tensors = {key: value.contiguous() for key, value in tensors.items()}
    save_file({**tensors, "expected": expected.float().contiguous()}, OUT / f"{name}.safetensors")


def by_compressed_tensors(name, form, args, weight, scale, **more):
    """`scale`: as the library wants it, in f32 or bf16."""
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    library = BaseCompressor.get_value_from_registry(form)
    stored = library.compress({"weight": weight, "weight_scale": scale, **more}, scheme)
    back = library.decompress(dict(stored), scheme)["weight"]
    if "fp4" in form:    # which it makes in bf16; here in f32
        scales = stored["weight_scale"]
        scales = decompress_mx_scale(scales) if scales.dtype == torch.uint8 else scales.float()
        back = dequantize(unpack_fp4_from_uint8(stored["weight_packed"], *weight.shape, dtype=torch.float32), scales,
                          args=scheme.weights, global_scale=stored.get("weight_global_scale"), dtype=torch.float32)
    write(name, {f"m.{key}": value for key, value in stored.items()}, back)


def absmax(weight, rows, columns, most):
    n, k = weight.shape
    blocks = weight.float().reshape(n // rows, rows, k // columns, columns)
    return blocks.abs().amax(dim=(1, 3)) / most


def main():
    OUT.mkdir(exist_ok=True)
    torch.manual_seed(1)
    w = torch.randn(24, 96) * torch.logspace(-3, 1, 24)[:, None]
    whole = {"num_bits": 4, "type": "int", "symmetric": True}
    by_compressed_tensors("int4_groups", "pack-quantized", {**whole, "strategy": "group", "group_size": 32}, w,
                          absmax(w, 1, 32, 7).float())
    by_compressed_tensors("int4_rows", "pack-quantized", {**whole, "strategy": "channel"}, w, absmax(w, 1, 96, 7))
    by_compressed_tensors("int8_packed_rows", "pack-quantized", {**whole, "num_bits": 8, "strategy": "channel"}, w,
                          absmax(w, 1, 96, 127))
    by_compressed_tensors("int8_rows", "int-quantized", {**whole, "num_bits": 8, "strategy": "channel"}, w,
                          absmax(w, 1, 96, 127))
    eight = {"num_bits": 8, "type": "float", "symmetric": True}
    by_compressed_tensors("e4m3_rows", "float-quantized", {**eight, "strategy": "channel"}, w, absmax(w, 1, 96, 448))
    by_compressed_tensors("e4m3_whole", "float-quantized", {**eight, "strategy": "tensor"}, w,
                          absmax(w, 24, 96, 448).reshape(1))
    four = {"num_bits": 4, "type": "float", "symmetric": True}
    limit = 448 * 6 / w.abs().max().reshape(1)
    by_compressed_tensors("nvfp4", "nvfp4-pack-quantized", {**four, "strategy": "tensor_group", "group_size": 16}, w,
                          (absmax(w, 1, 16, 6) * limit).to(torch.float8_e4m3fn).float(), weight_global_scale=limit)
    power = lambda scale: torch.exp2(torch.ceil(torch.log2(scale)))
    by_compressed_tensors("mxfp4", "mxfp4-pack-quantized", {**four, "strategy": "group", "group_size": 32}, w,
                          power(absmax(w, 1, 32, 6)))
    by_compressed_tensors("mxfp8", "mxfp8-quantized", {**eight, "strategy": "group", "group_size": 32}, w,
                          power(absmax(w, 1, 32, 448)))

    # DeepSeek-V3's and V4's forms, as Transformers reads them: blocks of 128 × 128, powers of two, and E2M1 in I8.
    of = Fp8Dequantize(None)
    for name, shape, key in [("deepseek_v3", (128, 256), "m.weight_scale_inv"), ("deepseek_v4", (256, 128), "m.scale")]:
        v = torch.randn(shape)
        scales = absmax(v, 128, 128, 448)
        if name == "deepseek_v4":
            scales = power(scales).to(torch.float8_e8m0fnu)
        grid = scales.float().repeat_interleave(128, 0).repeat_interleave(128, 1)
        numbers = (v / grid).to(torch.float8_e4m3fn)
        write(name, {"m.weight": numbers, key: scales}, of._dequantize_one(numbers, scales, torch.float32))
    packed = torch.randint(-128, 128, (8, 64), dtype=torch.int8)
    scales = torch.exp2(torch.randint(-9, 3, (8, 4)).float()).to(torch.float8_e8m0fnu)
    write("deepseek_v4_experts", {"m.weight": packed, "m.scale": scales}, of._dequantize_one(packed, scales, torch.float32))

    # NVIDIA's Model Optimizer: a factor of factors that multiplies.
    factors = torch.rand(8, 8).add(0.1).to(torch.float8_e4m3fn)
    of_factors = torch.tensor(0.037)
    numbers = of._unpack_fp4(packed)
    write("modelopt_nvfp4", {"m.weight": packed.view(torch.uint8), "m.weight_scale": factors,
                             "m.weight_scale_2": of_factors, "m.input_scale": torch.tensor(1.5)},
          numbers * (factors.float() * of_factors).repeat_interleave(16, 1))


if __name__ == "__main__":
    main()
