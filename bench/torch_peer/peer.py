#!/usr/bin/env python3
"""One PyTorch training process that Heddle's benchmark can interleave with its own steps.

    python peer.py --shape shapes/wide.json --dtype bf16 --threads 2 --peer plain

Peers:
- transformers  Hugging Face's DeepseekV3ForCausalLM run eagerly, its quickest attention and experts implementations
- compiled      the same model under torch.compile
- plain         plain.py without compilation
- pieces        plain.py with its element-wise runs compiled
- megatron      Megatron-Core without Transformer Engine (megatron_model.py)

All use the same optimizer (optimizer.py), thread count and allocator settings. A step is: microbatches x (forward,
backward), clipping by the global norm, AdamW, gradients forgotten, on random token ids drawn before the clock starts.

Protocol, one JSON object a line on stdout: {"warm_up_step": seconds} for each step of warming up, then {"ready": true,
...}; for every line "step" on stdin {"seconds": wall time, "cpu_seconds": processor time of all threads, "loss": ...};
"quit" or end of input ends it. On failure {"error": ...} and exit status 1. Everything else goes to stderr. Between
steps the process sleeps in read.
"""
import argparse
import ctypes
import json
import os
import sys
import time

PEERS = ("transformers", "compiled", "plain", "pieces", "megatron")
CONFIG_KEYS = ("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
               "first_k_dense_replace", "num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
               "kv_lora_rank", "q_lora_rank", "n_routed_experts", "n_group", "topk_group", "num_experts_per_tok",
               "n_shared_experts", "routed_scaling_factor", "norm_topk_prob", "rms_norm_eps", "rope_theta",
               "initializer_range")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", required=True)
    parser.add_argument("--dtype", choices=("bf16", "f32"), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--experts", choices=("auto", "eager", "grouped_mm", "batched_mm"), default="auto",
                        help="experts implementation of the Transformers peers; auto times eager and grouped_mm")
    parser.add_argument("--attention", choices=("auto", "eager", "sdpa"), default="auto",
                        help="attention implementation of the Transformers peers; auto times both")
    parser.add_argument("--profile", metavar="FILE", help="write a table of operator times of two steps, then end")
    return parser.parse_args()


def quiet_environment(threads):
    """Before torch is imported: thread count, no spinning while idle, memory kept instead of returned to the system."""
    os.environ.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), KMP_BLOCKTIME="0",
                      OMP_WAIT_POLICY=os.environ.get("OMP_WAIT_POLICY", "passive"), HF_HUB_OFFLINE="1",
                      TOKENIZERS_PARALLELISM="false")
    m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):   # page faults of freshly mapped tensors would otherwise take a third of the time
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
        libc.mallopt(m_top_pad, 1 << 26)


class Training:
    """A model, its optimizer and its data: what one line "step" runs."""

    def __init__(self, args, shape):
        import torch
        from optimizer import AdamW
        self.torch, self.args, self.shape = torch, args, shape
        self.dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
        torch.set_num_threads(args.threads)
        torch.set_flush_denormal(True)
        torch.manual_seed(7)
        if args.device == "cuda":   # cuDNN's attention is the quickest on Hopper and not PyTorch's first choice
            torch.backends.cuda.enable_flash_sdp(False)
            torch.backends.cuda.enable_mem_efficient_sdp(False)
        if args.peer in ("compiled", "pieces"):
            import torch._dynamo
            import torch._inductor.config
            if args.device == "cpu":
                torch._inductor.config.compile_threads = 1     # no pool of compiler processes beside the benchmark
            torch._dynamo.config.recompile_limit = 64
        self.facts = dict(peer=args.peer, dtype=args.dtype, threads=args.threads, torch=torch.__version__)
        if args.device == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = False    # f32 is f32, as Heddle's
            self.facts["device"] = torch.cuda.get_device_name()
        models = dict(plain=self.plain_model, pieces=self.plain_model, megatron=self.megatron_model)
        self.model = models.get(args.peer, self.transformers_model)()
        self.model.train()
        parameters = list(self.model.parameters())
        self.facts["parameters"] = sum(p.numel() for p in parameters)
        self.facts["tokens_per_step"] = shape["sequence"] * shape["microbatch"] * shape["microbatches"]
        self.optimizer = AdamW(parameters)

    def plain_model(self):
        from plain import Model
        if self.shape["n_group"] != 1:
            raise ValueError("the plain model has no expert groups: n_group must be 1")
        with self.torch.device(self.args.device):
            model = Model(self.shape, compiled_pieces=self.args.peer == "pieces").to(self.dtype)
        self.loss_of = model
        return model

    def transformers_model(self):
        import transformers
        from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
        transformers.utils.logging.set_verbosity_error()
        config = {key: self.shape[key] for key in CONFIG_KEYS}
        config = DeepseekV3Config(**config, num_key_value_heads=config["num_attention_heads"], use_cache=False,
                                  num_mtp_layers=0, max_position_embeddings=self.shape["sequence"])
        with self.torch.device(self.args.device):     # random numbers of a processor take a minute
            model = DeepseekV3ForCausalLM(config).to(self.dtype)
        for layer in model.model.layers:    # .to() above also rounds the selection bias, which stays float32
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate.e_score_correction_bias = layer.mlp.gate.e_score_correction_bias.float()
        self.facts["transformers"] = transformers.__version__
        self.loss_of = lambda ids: model(input_ids=ids, labels=ids).loss
        return model

    def megatron_model(self):
        import megatron.core
        from megatron_model import model_of
        self.facts["megatron"] = megatron.core.__version__
        model, self.loss_of = model_of(self.shape, self.dtype, self.args.device)
        return model

    def wait(self):
        """Until the device has done what it was given."""
        if self.args.device == "cuda":
            self.torch.cuda.synchronize()

    def choose_implementations(self):
        """Transformers offers several; take the quickest here, by timing forward and backward of one microbatch."""
        args, config, chosen = self.args, self.model.config, {}
        compiled = args.peer == "compiled"
        options = [("attention", "_attn_implementation", args.attention, ("sdpa", "eager")),
                   ("experts", "_experts_implementation", args.experts,
                    ("grouped_mm",) if compiled else ("grouped_mm", "eager"))]   # the eager loop can't be compiled
        setattr(config, "_experts_implementation", "grouped_mm")
        for name, field, asked, candidates in options:
            candidates = candidates if asked == "auto" else (asked,)
            seconds = {candidate: [] for candidate in candidates}
            for _ in range(3 if len(candidates) > 1 else 0):
                for candidate in candidates:
                    setattr(config, field, candidate)
                    start = time.perf_counter()
                    self.loss_of(self.ids()).backward()
                    self.wait()
                    seconds[candidate].append(time.perf_counter() - start)
                    for p in self.model.parameters():
                        p.grad = None
            best = min(candidates, key=lambda c: min(seconds[c], default=0.0))
            setattr(config, field, best)
            chosen[name] = best
            chosen[f"{name}_seconds"] = {c: round(min(s), 4) for c, s in seconds.items() if s}
        if getattr(self.optimizer, "touched", None):
            self.optimizer.touched = [False] * len(self.optimizer.touched)
        self.facts.update(chosen)

    def compile(self):
        """The whole model if TorchInductor can, else layer by layer, else as it is; the outcome is reported."""
        torch, model = self.torch, self.model
        whole = torch.compile(model, dynamic=False)
        try:
            self.loss_of = lambda ids: whole(input_ids=ids, labels=ids).loss
            self.loss_of(self.ids()).backward()
            self.facts["compiled"] = "whole model"
            breaks = torch._dynamo.utils.counters["graph_break"]
            self.facts["graph_breaks"] = sum(breaks.values())
        except Exception as reason:   # whatever the compiler throws, the peer must still run and say so
            self.facts["compiled"] = "layers"
            self.facts["compile_failure"] = f"{type(reason).__name__}: {str(reason)[:300]}"
            torch._dynamo.reset()
            for layer in model.model.layers:
                layer.self_attn.compile(dynamic=False)
                (layer.mlp.shared_experts if hasattr(layer.mlp, "gate") else layer.mlp).compile(dynamic=False)
            self.loss_of = lambda ids: model(input_ids=ids, labels=ids).loss

    def ids(self):
        return self.torch.randint(0, self.shape["vocab_size"], (self.shape["microbatch"], self.shape["sequence"]),
                                  device=self.args.device)

    def step(self):
        microbatches = self.shape["microbatches"]
        batches = [self.ids() for _ in range(microbatches)]
        self.wait()
        wall, processor = time.perf_counter(), time.process_time()
        losses = []
        for ids in batches:
            loss = self.loss_of(ids) / microbatches
            loss.backward()
            losses.append(loss.detach())
        self.optimizer.step()
        total = sum(loss.item() for loss in losses)
        self.wait()
        return dict(seconds=time.perf_counter() - wall, cpu_seconds=time.process_time() - processor, loss=total)

    def warm_up(self, say):
        start = time.perf_counter()
        if self.args.peer in ("transformers", "compiled"):
            self.choose_implementations()
        if self.args.peer == "compiled":
            self.compile()
        if self.args.device == "cuda":
            self.torch.cuda.reset_peak_memory_stats()
        for _ in range(3):
            say(warm_up_step=round(self.step()["seconds"], 3))
        if self.args.device == "cuda":
            self.facts["peak_bytes"] = self.torch.cuda.max_memory_allocated()
            self.facts["held_bytes"] = self.torch.cuda.max_memory_reserved()
        self.facts["warm_up_seconds"] = round(time.perf_counter() - start, 1)

    def profile(self, path):
        """Operator times of two steps and the share of matrix products among them."""
        torch = self.torch
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as record:
            self.step()
            self.step()
        rows = record.key_averages()
        total = sum(row.self_cpu_time_total for row in rows)
        products = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_grouped_mm", "aten::matmul",
                    "aten::linear", "aten::mkldnn", "mkldnn", "transformers::grouped_mm", "flash_attention")
        share = sum(row.self_cpu_time_total for row in rows if any(p in row.key for p in products)) / total
        with open(path, "w") as out:
            out.write(f"matrix products: {share:.1%} of {total / 2e6:.3f} s a step\n")
            out.write(rows.table(sort_by="self_cpu_time_total", row_limit=40))
        return share


def main():
    args = arguments()
    protocol = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)     # whatever a library prints to stdout goes to stderr
    say = lambda **fields: print(json.dumps(fields), file=protocol, flush=True)
    try:
        quiet_environment(args.threads)
        with open(args.shape) as file:
            shape = json.load(file)
        training = Training(args, shape)
        training.warm_up(say)
        if args.profile:
            say(matrix_product_share=round(training.profile(args.profile), 4), **training.facts)
            return 0
        say(ready=True, **training.facts)
        for line in sys.stdin:
            command = line.strip()
            if command == "quit":
                break
            if command != "step":
                raise ValueError(f"unknown command {command!r}; accepted are step and quit")
            say(**training.step())
        return 0
    except Exception as reason:
        say(error=f"{type(reason).__name__}: {reason}")
        raise


if __name__ == "__main__":
    sys.exit(main())
