#!/usr/bin/env python3
"""Writes tests/fixtures/sft: what TRL's SFTTrainer makes of a few samples, and its loss of them on the fixture qwen3.

Needs torch, transformers, trl and datasets (PyPI). The tokenizer has letters for tokens, so that the vocabulary of that
model holds it. Conversations are trained with assistant_only_loss, pairs with completion_only_loss, as trl.json says:
ids and labels of each sample, the batch's loss, and the norm of each gradient under its published name, in f64.
"""
import json
import pathlib
import string
import uuid

import datasets
import torch
import transformers
import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

# Nothing is cached, and pyarrow 26 holds what datasets 5.2 can't hash.
datasets.fingerprint.Hasher.hash = classmethod(lambda cls, value: uuid.uuid4().hex[:16])
FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "tests/fixtures"
FOLDER = FIXTURES / "sft"
TEMPLATE = ("{% for m in messages %}{% if m.role == 'assistant' %}<|says|>{% generation %}{{ m.content }}<|turn|>{% endgeneration %}"
            "{% else %}<|asks|>{{ m.content }}<|turn|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|says|>{% endif %}")
CONVERSATIONS = [
    [("user", "what holds the warp"), ("assistant", "the heddles")],
    [("user", "who throws"), ("assistant", "a weaver"), ("user", "what"), ("assistant", "the shuttle")],
    [("user", "is it done"), ("assistant", "yes")]]
PAIRS = [("warp and", " weft"), ("one thread\nover ", "one under"), ("a", " b")]


def tokenizer():
    letters = list(string.ascii_lowercase) + ["▁", "\n", "<unk>"]
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, [], unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    made.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<|endoftext|>", "<|asks|>", "<|says|>", "<|turn|>")])
    made = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|endoftext|>", pad_token="<|endoftext|>",
                                   unk_token="<unk>")
    made.chat_template = TEMPLATE
    return made


def of_trl(samples, words, **settings):
    model = AutoModelForCausalLM.from_pretrained(FIXTURES / "qwen3", dtype=torch.float64, attn_implementation="eager")
    how = trl.SFTConfig(output_dir="/tmp/none", report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
                        max_length=None, **settings)
    trainer = trl.SFTTrainer(model, args=how, train_dataset=datasets.Dataset.from_list(samples), processing_class=words)
    rows = [trainer.train_dataset[i] for i in range(len(samples))]
    batch = trainer.data_collator(rows)
    model.train()
    loss = trainer.compute_loss(model, batch)
    loss.backward()
    lengths = [len(row["input_ids"]) for row in rows]
    cut = lambda tensor: [row[:length].tolist() for row, length in zip(tensor, lengths)]
    return dict(input_ids=cut(batch["input_ids"]), labels=cut(batch["labels"]), loss=loss.item(),
                gradient_norms={name: p.grad.norm().item() for name, p in model.named_parameters()})


def main():
    FOLDER.mkdir(exist_ok=True)
    words = tokenizer()
    words.save_pretrained(FOLDER)
    conversations = [{"messages": [{"role": role, "content": text} for role, text in turns]} for turns in CONVERSATIONS]
    pairs = [{"prompt": prompt, "completion": completion} for prompt, completion in PAIRS]
    for name, samples in (("conversations", conversations), ("pairs", pairs)):
        (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    made = dict(versions=dict(trl=trl.__version__, transformers=transformers.__version__, torch=torch.__version__.split("+")[0]),
                conversations=of_trl(conversations, words, assistant_only_loss=True),
                pairs=of_trl(pairs, words, completion_only_loss=True))
    (FOLDER / "trl.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
