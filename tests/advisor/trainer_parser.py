#!/usr/bin/env python3
"""Asks Megatron-LM's own argument parser whether it takes launch scripts.

    trainer_parser.py MEGATRON_LM SCRIPT [SCRIPT ...]

MEGATRON_LM is a checkout. A script is run by bash with no program in reach but a stand-in for torchrun, which notes
what it gets; that goes through `parse_args`, `validate_args` and the checks of `TransformerConfig`, as for as many
ranks as the script starts. Prints a line a script, exits 1 where one is refused, 77 where Megatron-LM or torch is not
there.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

SKIPPED = 77
STAND_IN = "#!{bash}\nprintf '%s\\0' \"$CUDA_DEVICE_MAX_CONNECTIONS\" \"$@\" > \"$NOTED\"\n"
OWN = {"--nproc_per_node", "--nproc-per-node", "--nnodes", "--node_rank", "--node-rank", "--master_addr",
       "--master-addr", "--master_port", "--master-port"}


def arguments_of(script):
    """The trainer's arguments, the number of ranks and the hardware queues, as the script would start it."""
    with tempfile.TemporaryDirectory() as folder:
        noted = pathlib.Path(folder) / "noted"
        bash = "/bin/bash"
        for names, text in ((("torchrun", "python", "python3", "uv"), STAND_IN), (("mkdir", "dirname", "tee"), "#!{bash}\n")):
            for name in names:
                program = pathlib.Path(folder) / name
                program.write_text(text.format(bash=bash))
                program.chmod(0o755)
        (pathlib.Path(folder) / "pretrain_gpt.py").touch()    # some look whether it is there
        subprocess.run([bash, str(pathlib.Path(script).resolve()), *(f"argument{n}" for n in range(1, 9))], cwd=folder,
                       env={"PATH": folder, "NOTED": str(noted)},
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)
        if not noted.exists():
            raise ValueError("it starts no torchrun")
        connections, *words = noted.read_bytes().decode().split("\0")[:-1]
    program = next(i for i, word in enumerate(words) if word.endswith(".py"))
    started, i = {}, 0
    while i < program:
        name, _, value = words[i].partition("=")
        if name in OWN:
            if not value:
                i, value = i + 1, words[i + 1]
            started[name.replace("_", "-")] = value
        i += 1
    ranks = int(started.get("--nproc-per-node", 1)) * int(started.get("--nnodes", 1))
    return {"words": words[program + 1:], "ranks": ranks, "connections": connections}


def parse(megatron, words, ranks, connections):
    """In a process of its own: the parser ends it where it refuses."""
    sys.path.insert(0, megatron)
    sys.argv = ["pretrain_gpt.py", *words]
    os.environ.update(RANK="0", WORLD_SIZE=str(ranks), LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="",
                      CUDA_DEVICE_MAX_CONNECTIONS=connections)
    import typing
    if not hasattr(typing, "override"):    # Python 3.11
        import typing_extensions
        typing.override = typing_extensions.override
    import torch
    # As on an H100, whether or not there is one.
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0)
    # As where Transformer Engine is installed, which needs a GPU.
    from megatron.core import utils
    utils.is_te_min_version = lambda *_, **__: True
    from megatron.core.models.common.embeddings import rope_utils
    rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb or object()
    rope_utils.fused_apply_rotary_pos_emb_thd = rope_utils.fused_apply_rotary_pos_emb_thd or object()
    from megatron.training import arguments
    args = arguments.parse_args()
    args.world_size, args.rank = ranks, 0
    arguments.validate_args(args)
    arguments.core_transformer_config_from_args(args)
    print(json.dumps({name: getattr(args, name) for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size",
                                                             "expert_model_parallel_size", "data_parallel_size")}))


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--parse":
        parse(sys.argv[2], **json.loads(sys.stdin.read()))
        return 0
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    megatron = sys.argv[1]
    if not (pathlib.Path(megatron) / "megatron/training/arguments.py").exists():
        print(f"no Megatron-LM in {megatron}")
        return SKIPPED
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode:
        print("no torch")
        return SKIPPED
    refused = 0
    for script in sys.argv[2:]:
        try:
            started = arguments_of(script)
        except (ValueError, StopIteration, OSError, subprocess.TimeoutExpired) as error:
            refused += 1
            print(f"{script}: not started: {error}")
            continue
        done = subprocess.run([sys.executable, __file__, "--parse", megatron], capture_output=True, text=True,
                              input=json.dumps(started), check=False)
        said = (done.stderr.strip().splitlines() or ["?"])[-1]
        refused += done.returncode != 0
        print(f"{script}: {'accepted' if done.returncode == 0 else 'refused: ' + said}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
