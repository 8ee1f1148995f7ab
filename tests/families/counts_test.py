#!/usr/bin/env python3
"""Holds the parameters that `heddle plan FOLDER` counts to Hugging Face Transformers: every family with a head for
language, on the meta device.

    counts_test.py PATH_OF_HEDDLE [--family NAME …] [--keys] [--write FILE]

A family's default config.json is counted by both: the counts agree to the last parameter, or Heddle refuses the
family or a key by name. With --keys each whole number, switch and null of it is changed by itself too, and each key
left out. Biases that balance experts count, which some of Transformers' models hold as buffers. --write stores the
defaults that Heddle counts, with Transformers' counts, for tests/config/shape_json_test.cpp.

Needs the packages of bench/torch_peer/requirements.txt; exits with 77 where they are missing.
"""
import argparse
import contextlib
import io
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
except ImportError as missing:
    print(f"skipped: {missing}; bench/torch_peer/requirements.txt lists what is needed")
    sys.exit(77)

BALANCE = ("e_score_correction_bias", ".expert_bias")
OF_PICTURES = ("vision_tower.", "multi_modal_projector.")
# Keys that say nothing of sizes.
OTHER = {"architectures", "bos_token_id", "dtype", "eos_token_id", "initializer_range", "is_decoder", "model_type",
         "pad_token_id", "scale_attn_weights", "transformers_version", "use_cache"}
# Their experts without computation have weights in Transformers that nothing reads.
UNREAD = {"longcat_flash"}
ASKED = ["--devices", "2048", "--cluster", "H200", "--global-batch", "2048", "--sequence", "128", "--threads", "1", "--json"]


def counted_by_transformers(folder):
    """None where Transformers does not make the model."""
    try:
        config = AutoConfig.from_pretrained(folder)
        with torch.device("meta"), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            model = AutoModelForCausalLM.from_config(config)
            model.tie_weights()
    except Exception:    # of a hundred kinds: the file is none of the family's
        return None
    return (sum(p.numel() for name, p in model.named_parameters() if not any(part in name for part in OF_PICTURES)) +
            sum(b.numel() for name, b in model.named_buffers() if name.endswith(BALANCE)))


def counted_by_heddle(heddle, folder):
    """The count, or why there is none."""
    done = subprocess.run([heddle, "plan", str(folder), *ASKED], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 2 or not done.stdout:
        return None, (done.stderr.strip().splitlines() or ["?"])[-1]
    answer = json.loads(done.stdout)
    return answer.get("parameters"), "no plan fits"


def variants(config):
    yield "as it is", config
    for key, value in config.items():
        if key in OTHER:
            continue
        others = ([not value] if isinstance(value, bool) else [value + 1, 2 * value, max(1, value // 2)]
                  if isinstance(value, int) else [True, 64, 2] if value is None else [])
        for other in others:
            yield f"{key} = {json.dumps(other)}", config | {key: other}
        yield f"without {key}", {k: v for k, v in config.items() if k != key}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--family", action="append")
    parser.add_argument("--keys", action="store_true")
    parser.add_argument("--write")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    wrong, agreed, refused, stored = 0, 0, {}, []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "model"
        folder.mkdir()
        for family in given.family or [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if name not in UNREAD]:
            try:
                default = CONFIG_MAPPING[family]()
                default.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]]
                default.save_pretrained(folder)
            except Exception as error:    # its defaults are not complete
                print(f"{family}: no default: {error!r:.100}")
                continue
            config = json.loads((folder / "config.json").read_text())
            for what, changed in variants(config) if given.keys else [("as it is", config)]:
                (folder / "config.json").write_text(json.dumps(changed))
                expected = counted_by_transformers(folder)
                if expected is None:
                    continue
                found, reason = counted_by_heddle(given.heddle, folder)
                if found is None:
                    refused.setdefault(family, reason)
                elif round(found) == expected:
                    agreed += 1
                    if what == "as it is":
                        stored.append({"parameters": expected,
                                       "config": {k: v for k, v in changed.items() if k not in OTHER - {"model_type"}}})
                else:
                    wrong += 1
                    print(f"{family}, {what}: Transformers has {expected} parameters, Heddle {found:.0f} "
                          f"({100 * (found - expected) / expected:+.3f} %)", flush=True)
    for family, reason in refused.items():
        print(f"{family}: refused: {reason[:160]}")
    print(f"{agreed} counts agree, {wrong} do not, {len(refused)} families have a refusal")
    if given.write:
        lines = ",\n".join(json.dumps(each, sort_keys=True) for each in stored)
        pathlib.Path(given.write).write_text(f"[\n{lines}\n]\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
