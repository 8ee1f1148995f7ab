#!/usr/bin/env python3
"""Asks the argument parser of Megatron-LM, MindSpeed or MindSpeed-LLM whether it takes launch scripts.

    trainer_parser.py MEGATRON_LM[:MINDSPEED[:MINDSPEED_LLM]] SCRIPT[:ARGUMENT...] [SCRIPT ...]

Each is a checkout; the last one's parser is asked, which adds to those of the others (MindSpeed of July 2026 wants
Megatron-LM core_v0.12.1). A script is run by bash with no program in reach but stand-ins for torchrun, which notes
what it gets, and for srun and nohup, which run what they get; that goes through `parse_args`, `validate_args` and the checks of `TransformerConfig`, as for as many
ranks as the script starts. Prints a line a script, exits 1 where one is refused, 77 where a checkout, torch
or another package that it imports is not there.
"""
import importlib.machinery
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import types
import unittest.mock
import warnings

SKIPPED = 77
SRUN = "#!{bash}\nwhile [[ $1 == -* ]]; do shift; done\n\"$@\"\n"
STAND_IN = "#!{bash}\nprintf '%s\\0' \"$CUDA_DEVICE_MAX_CONNECTIONS\" \"$@\" > \"$NOTED\"\n"
OWN = {"--nproc_per_node", "--nproc-per-node", "--nnodes", "--node_rank", "--node-rank", "--master_addr",
       "--master-addr", "--master_port", "--master-port"}


def arguments_of(script):
    """The trainer's arguments, the number of ranks and the hardware queues, as the script would start it."""
    with tempfile.TemporaryDirectory() as folder:
        noted = pathlib.Path(folder) / "noted"
        bash = "/bin/bash"
        for names, text in ((("torchrun", "python", "python3", "uv"), STAND_IN), (("srun", "nohup"), SRUN),
                            (("mkdir", "tee", "scontrol", "hostname"), "#!{bash}\n")):
            for name in names:
                program = pathlib.Path(folder) / name
                program.write_text(text.format(bash=bash))
                program.chmod(0o755)
        for name in ("bash", "dirname", "cat"):
            (pathlib.Path(folder) / name).symlink_to(shutil.which(name))
        (pathlib.Path(folder) / "pretrain_gpt.py").touch()    # some look whether it is there
        path, *given = script.split(":")
        given = [word for word in given if word] if given else [f"argument{n}" for n in range(1, 9)]
        subprocess.run([bash, str(pathlib.Path(path).resolve()), *given], cwd=folder,
                       env={"PATH": folder, "NOTED": str(noted), "SLURM_JOB_ID": "1", "SLURM_NODEID": "0"},
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)
        ends = time.monotonic() + 2    # of what the script left in the background
        while not noted.exists() and time.monotonic() < ends:
            time.sleep(0.05)
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
    words = [word for word in words if not (word.startswith("argument") and word[8:].isdigit())]    # what "$@" stood for
    ranks = int(started.get("--nproc-per-node", 1)) * int(started.get("--nnodes", 1))
    return {"words": words[program + 1:], "ranks": ranks, "connections": connections}


def load(megatron):
    """The parser's module, as on an H100 with Transformer Engine, whether or not they are here."""
    sys.path.insert(0, megatron)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import typing
    if not hasattr(typing, "override"):    # Python 3.11
        import typing_extensions
        typing.override = typing_extensions.override
    import torch
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0)
    from megatron.core import utils
    from packaging.version import Version
    utils.get_te_version = lambda: Version("99")
    from megatron.core.models.common.embeddings import rope_utils
    rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb or object()
    rope_utils.fused_apply_rotary_pos_emb_thd = rope_utils.fused_apply_rotary_pos_emb_thd or object()
    from megatron.training import arguments
    return arguments


class StandIn:
    """Modules of Ascend's NPU, which its parser imports and asks nothing of."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch_npu", "torchair", "acl"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return unittest.mock.MagicMock(__path__=[], __spec__=spec, __name__=spec.name, __file__=spec.name)

    def exec_module(self, module):
        pass


def load_mindspeed(checkouts):
    """Imports what no script's words decide. Returns what adds the rest, by sys.argv, and gives the parser's module."""
    sys.path[:0] = checkouts
    os.environ.update(CUDA_VISIBLE_DEVICES="", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    sys.argv = ["pretrain_gpt.py"]
    import torch
    sys.meta_path.insert(0, StandIn())
    torch.npu = unittest.mock.MagicMock()
    if len(checkouts) > 2:
        from mindspeed_llm import megatron_adaptor
        add = megatron_adaptor.FeatureAdaptor.execute
    else:
        from mindspeed import args_utils
        from mindspeed.features_manager import MindSpeedFeaturesManager as manager

        def add():
            manager.remove_patches()
            args_utils._MINDSPEED_ARGS = None
            words = args_utils.get_mindspeed_args()
            manager.apply_features_pre_patches(words)
            manager.apply_features_patches(words)
        add()

    def parser():
        add()
        from megatron.training import arguments
        return arguments
    return parser


def refusal(parser, words, ranks, connections):
    """Why the parser or a check refuses the words, in a process of its own, which a refusal may end; "" where none does."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            sys.argv = ["pretrain_gpt.py", *words]
            os.environ.update(RANK="0", WORLD_SIZE=str(ranks), LOCAL_RANK="0", CUDA_DEVICE_MAX_CONNECTIONS=connections)
            try:
                arguments = parser()
                args = arguments.parse_args()
                args.world_size, args.rank = ranks, 0
                arguments.validate_args(args)
                from megatron.training import global_vars
                global_vars.set_args(args)    # where MindSpeed's checks of the model look for it
                arguments.core_transformer_config_from_args(args)
            except BaseException:    # also the end of the program
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        failed = os.waitpid(child, 0)[1] != 0
        said.seek(0)
        lines = [line.strip() for line in said if line.strip()]
    if not failed:
        return ""
    errors = [line for line in lines if line.startswith("pretrain_gpt.py: error:")]
    return (errors or lines or ["?"])[-1]


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    scripts, checkouts = sys.argv[2:], sys.argv[1].split(":")
    for checkout, holds in zip(checkouts, ("megatron/training/arguments.py", "mindspeed/megatron_adaptor.py",
                                           "mindspeed_llm/training/arguments.py")):
        if not (pathlib.Path(checkout) / holds).exists():
            print(f"no {holds} in {checkout}")
            return SKIPPED
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode:
        print("no torch")
        return SKIPPED
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            arguments = load(checkouts[0]) if len(checkouts) == 1 else None
            parser = load_mindspeed(checkouts) if arguments is None else lambda: arguments
        except ModuleNotFoundError as error:
            print(f"no {error.name}")
            return SKIPPED
    for script in scripts:
        try:
            said = refusal(parser, **arguments_of(script))
        except (ValueError, StopIteration, OSError, subprocess.TimeoutExpired) as error:
            said = f"it is not started: {error}"
        refused += said != ""
        print(f"{script}: {'refused: ' + said if said else 'accepted'}", flush=True)
    print(f"{len(scripts) - refused} of {len(scripts)} scripts are accepted")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
