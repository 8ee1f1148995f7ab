#!/usr/bin/env python3
"""What the libraries of PyTorch reach on this device: the ceilings beside which Heddle's kernels are seen.

    python3 ceilings.py [--device cuda|cpu] [--small]

One object of JSON: bytes a second of a copy, FLOP/s of products at 8192³ and at the shapes of DeepSeek-V2-Lite's layer,
of attention with heads of 192 and values of 128 by each way that PyTorch has, and of grouped products. What can't be
had is named with the reason. --small: shapes with which all of it runs on a processor in seconds.
"""
import argparse
import json
import statistics
import time


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parse.add_argument("--small", action="store_true")
    arguments = parse.parse_args()
    import torch
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("ceilings: PyTorch finds no device")
    device = torch.device(arguments.device)
    told = {"torch": torch.__version__, "cuda": torch.version.cuda, "rates": {}, "missing": {}}
    torch.manual_seed(1)

    def wait():
        if arguments.device == "cuda":
            torch.cuda.synchronize()

    def seconds(work, rounds=9):
        work()
        wait()
        start = time.perf_counter()
        work()
        wait()
        times = max(1, min(100, int(5e-3 / max(time.perf_counter() - start, 1e-9))))
        taken = []
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(times):
                work()
            wait()
            taken.append((time.perf_counter() - start) / times)
        return statistics.median(taken)

    def rate(name, amount, work):
        try:
            told["rates"][name] = amount / seconds(work)
        except Exception as error:      # a ceiling less, not the end
            told["missing"][name] = str(error).splitlines()[0][:200] if str(error) else type(error).__name__

    def matrix(*shape):
        return torch.randn(*shape, device=device, dtype=torch.bfloat16)

    T, H, F, E, k, V, S = (64, 64, 48, 4, 2, 256, 32) if arguments.small else (8192, 2048, 1408, 64, 6, 102400, 4096)
    size = 1 << (20 if arguments.small else 30)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    rate("copy", 2 * size, lambda: target.copy_(source))
    del source, target
    square = 256 if arguments.small else 8192
    for name, (m, n, inner) in {"product 8192³": (square, square, square), "linear": (T, 4 * H, H),
                                "head": (T, V, H)}.items():
        a, b = matrix(m, inner), matrix(n, inner)
        rate(name, 2 * m * n * inner, lambda a=a, b=b: a @ b.T)
    # Attention: 192 numbers a head of queries and keys, 128 of values, causal: half of the products.
    heads, d, v = (2, 24, 16) if arguments.small else (16, 192, 128)
    B = max(1, T // S)
    q = matrix(B, heads, S, d).requires_grad_()
    key = matrix(B, heads, S, d).requires_grad_()
    value = matrix(B, heads, S, v).requires_grad_()
    products = B * heads * S * S * (d + v)     # forward: two products of half the square, two operations each
    from torch.nn.attention import SDPBackend, sdpa_kernel
    for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        def forward(backend=backend):
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return torch.nn.functional.scaled_dot_product_attention(q, key, value, is_causal=True)
        rate(f"attention {backend.lower()}", products, forward)
        try:
            out = forward()
            gradient = torch.randn_like(out)
        except Exception:       # named above
            continue
        rate(f"attention_dgrad {backend.lower()}", products * 5 / 2,
             lambda out=out, gradient=gradient: torch.autograd.grad(out, (q, key, value), gradient, retain_graph=True))
    # Experts: T·k rows, in equal groups.
    if hasattr(torch, "_grouped_mm"):
        rows = T * k
        ends = torch.arange(1, E + 1, device=device, dtype=torch.int32) * (rows // E)
        x, w, dy = matrix(rows, H), matrix(E, 2 * F, H), matrix(rows, 2 * F)
        flops = 2 * rows * H * 2 * F
        rate("grouped_linear", flops, lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=ends))
        rate("grouped_linear_dgrad", flops, lambda: torch._grouped_mm(dy, w, offs=ends))
        rate("grouped_linear_wgrad", flops, lambda: torch._grouped_mm(dy.T, x, offs=ends))
    else:
        told["missing"]["grouped products"] = "this PyTorch has none"
    print(json.dumps(told))


if __name__ == "__main__":
    main()
