#!/usr/bin/env python3
"""Writes tests/fixtures/dpo: a few pairs of answers, and what PyTorch makes of them on the fixture qwen3.

Needs torch and transformers. The loss is equation 7 of Rafailov et al. (arXiv 2305.18290), with smoothing as TRL has it,
written out in f64; the reference is the model as it begins. `pytorch.json` has for each case the loss, the rewards and
the gradient's norm of each of a few steps of AdamW over all pairs.
"""
import copy
import json
import pathlib

import torch
import torch.nn.functional as F
import transformers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
FOLDER = FIXTURES / "dpo"
PAIRS = [("what holds the warp ", "the heddles", "the weaver does it"), ("who throws ", "a weaver", "no one"),
         ("warp and ", "weft", "a thread"), ("is it done ", "yes", "not yet")]
CASES = {"plain": dict(beta=0.5, label_smoothing=0.0), "smoothed": dict(beta=2.0, label_smoothing=0.1)}
STEPS, RATE = 5, 2e-3


def rows(words):
    """Ids of each answer behind its prompt, and how many of them are the prompt's: preferred, other, preferred, …"""
    for prompt, *answers in PAIRS:
        for answer in answers:
            yield words(prompt + answer)["input_ids"] + [words.eos_token_id], len(words(prompt)["input_ids"])


def answers_log_p(model, samples):
    sums = []
    for ids, prompt in samples:
        ids = torch.tensor(ids)
        log_p = F.log_softmax(model(ids[None]).logits[0, :-1], -1).gather(-1, ids[1:, None])[:, 0]
        sums.append(log_p[prompt - 1:].sum())
    return torch.stack(sums)


def steps_of(samples, beta, label_smoothing):
    model = AutoModelForCausalLM.from_pretrained(FIXTURES / "qwen3", dtype=torch.float64, attn_implementation="eager")
    reference = copy.deepcopy(model)
    with torch.no_grad():
        held = answers_log_p(reference, samples)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    adamw = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)], lr=RATE,
                              betas=(0.9, 0.95), eps=1e-8)
    told = []
    for _ in range(STEPS):
        rewards = beta * (answers_log_p(model, samples) - held)
        chosen, rejected = rewards[0::2], rewards[1::2]
        margin = chosen - rejected
        loss = -((1 - label_smoothing) * F.logsigmoid(margin) + label_smoothing * F.logsigmoid(-margin)).mean()
        adamw.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters()))
        told.append(dict(loss=loss.item(), chosen=chosen.mean().item(), rejected=rejected.mean().item(),
                         margin=margin.mean().item(), accuracy=(margin > 0).double().mean().item(), norm=norm.item()))
        adamw.step()
    return told


def main():
    FOLDER.mkdir(exist_ok=True)
    words = PreTrainedTokenizerFast.from_pretrained(FIXTURES / "sft")
    samples = list(rows(words))
    lines = [dict(zip(("prompt", "chosen", "rejected"), pair)) for pair in PAIRS]
    (FOLDER / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = dict(versions=dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__), rate=RATE,
                longest=max(len(ids) for ids, _ in samples),
                cases={name: dict(**case, steps=steps_of(samples, **case)) for name, case in CASES.items()})
    (FOLDER / "pytorch.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
