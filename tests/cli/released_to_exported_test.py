"""Runs docs/howto/released_to_exported.md block by block, for three families, and looks at what comes out.

What the page does with Python is done where PyTorch, Transformers and PEFT are; elsewhere Heddle makes the checkpoint of the
same configuration, tokenizer and template, and what needs those packages is skipped by name.
"""
import ast
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from data_test import MegatronReader
from program import HEDDLE, MACHINE_SECONDS

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))
from page_commands import read_page

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import torch
    import transformers
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
except ImportError as missing:
    torch = None
    WITHOUT = str(missing)
try:
    import peft
except ImportError:
    peft = None

PAGE = ROOT / "docs/howto/released_to_exported.md"
COMMON = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=512,
              tie_word_embeddings=False)
# In the place of the page's own family: what for_model is given, and what gets adapters, of which PEFT knows as modules.
OTHERS = {
    "deepseek_v3": (COMMON | dict(num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16,
                                  qk_rope_head_dim=8, v_head_dim=16, first_k_dense_replace=1, moe_intermediate_size=32,
                                  n_shared_experts=1, n_routed_experts=8, num_experts_per_tok=2, n_group=2, topk_group=1),
                    "q_a_proj, q_b_proj, kv_a_proj_with_mqa, o_proj, experts"),
    "mixtral": (COMMON | dict(num_key_value_heads=2, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                              sliding_window=None), "attention, experts"),
}
ARCHITECTURES = dict(qwen3="Qwen3ForCausalLM", deepseek_v3="DeepseekV3ForCausalLM", mixtral="MixtralForCausalLM")
SETTINGS = dict(do_sample=True, temperature=0.6, top_p=0.95)
TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
# Keys of a config.json that say the same otherwise: our own, where it lay, what Transformers leaves to the class, a window
# that is off, prediction layers that the checkpoint has no weights of.
SPELT = {"heddle", "_name_or_path", "topk_method", "scoring_func", "moe_layer_freq", "max_window_layers",
         "num_nextn_predict_layers"}
LOGITS = 1e-5    # of their norm, in f32


def page():
    """The page's commands, by heading: [(heading, [text, ...])]."""
    commands, breaches = read_page(PAGE, PAGE.name)
    assert not breaches, breaches
    headings = [(number, line.removeprefix("## ")) for number, line in enumerate(PAGE.read_text().splitlines(), 1)
                if line.startswith("## ")]
    return [(heading, [c.text for c in commands if number < c.line and all(not number < n < c.line for n, _ in headings)])
            for number, heading in headings]


def script(command):
    """The Python of a here-document, or None."""
    return "\n".join(command.splitlines()[1:-1]) if command.startswith("python3") else None


def call_of(code, name):
    return next(node for node in ast.walk(ast.parse(code))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name)


def for_family(code, family):
    """The page's code with another family's configuration."""
    call = ast.get_source_segment(code, call_of(code, "for_model"))
    assert code.count(call) == 1
    keys = ", ".join(f"{key}={value!r}" for key, value in OTHERS[family][0].items())
    return code.replace(call, f'AutoConfig.for_model("{family}", {keys})')


class Folder:
    """A reader's folder, in which a family's page has been gone through."""

    def __init__(self, family, path):
        self.family, self.path, self.own = family, path, family not in OTHERS
        self.environment = os.environ | {"PATH": f"{path}/bin:{os.environ['PATH']}", "NO_COLOR": "1", "HOME": str(path),
                                         "XDG_CACHE_HOME": f"{path}/cache", "OMP_NUM_THREADS": "1",
                                         "OMP_WAIT_POLICY": "passive"}
        (path / "bin").mkdir()
        (path / "bin/heddle").symlink_to(HEDDLE)
        self.said = {}    # by command
        for heading, commands in page():
            for command in commands:
                self.follow(heading, command)

    def follow(self, heading, command):
        code = script(command)
        if not self.own:
            if "targets = " in command:
                assert command.count('targets = "all"') == 1
                command = command.replace('targets = "all"', f'targets = "{OTHERS[self.family][1]}"')
        if code and heading in ("A checkpoint", "Opened"):
            if torch is None:
                return self.made_here(code) if heading == "A checkpoint" else None
            if heading == "Opened" and peft is None:
                return None
            if not self.own:
                return self.within(for_family(code, self.family) if heading == "A checkpoint" else code)
        self.run(command)

    def run(self, command):
        if command.startswith("python3"):    # the one that has what is imported here
            command = command.replace("python3", sys.executable, 1)
        done = subprocess.run(["bash", "-eo", "pipefail", "-c", command], cwd=self.path, env=self.environment, text=True,
                              capture_output=True, timeout=MACHINE_SECONDS, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{self.family}: {command}\n{done.stdout}\n{done.stderr}"
        self.said[command] = done.stdout
        return done.stdout

    def within(self, code):
        """Python of the page in this process, which spares the imports."""
        before = os.getcwd()
        os.chdir(self.path)
        try:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(code, f"{PAGE.name}, {self.family}", "exec"), {})
            self.said[code] = said.getvalue()
        finally:
            os.chdir(before)

    def made_here(self, code):
        """The checkpoint without Transformers: of the same configuration and tokenizer, drawn by Heddle."""
        call = call_of(code, "for_model")
        keys = {k.arg: ast.literal_eval(k.value) for k in call.keywords} if self.own else OTHERS[self.family][0]
        template = next(ast.literal_eval(node.value) for node in ast.walk(ast.parse(code))
                        if isinstance(node, ast.Assign) and getattr(node.targets[0], "attr", "") == "chat_template")
        tokenizer = json.loads((self.path / "data/text/tokenizer.json").read_text())
        end = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == "<|endoftext|>")
        turns = ["<|im_start|>", "<|im_end|>"]
        like = dict(tokenizer["added_tokens"][0])
        tokenizer["added_tokens"] += [like | dict(id=end + 1 + i, content=word) for i, word in enumerate(turns)]
        drawn = self.path / "drawn"
        drawn.mkdir()
        (drawn / "tokenizer.json").write_text(json.dumps(tokenizer))
        (drawn / "config.json").write_text(json.dumps(
            keys | dict(model_type=self.family, architectures=[ARCHITECTURES[self.family]], vocab_size=end + 3)))
        (drawn / "run.toml").write_text('name = "drawn"\n[data]\nsource = "text.txt"\nfolder = "data/drawn"\n[train]\nsteps = 1\n'
                                        "warmup_steps = 0\ndecay_steps = 0\nlearning_rate = 1e-9\nmin_learning_rate = 0\nglobal_batch = 1\nmicrobatch = 1\n"
                                        "sequence_length = 32\nsample_tokens = 0\n")
        self.run("heddle train drawn/run.toml --set model.hf=drawn/config.json --set data.tokenizer=drawn --set output=runs/drawn")
        self.run("heddle convert runs/drawn --to released/small --dtype bf16")
        small = self.path / "released/small"
        (small / "tokenizer_config.json").write_text(json.dumps(dict(
            tokenizer_class="PreTrainedTokenizerFast", eos_token="<|endoftext|>", pad_token="<|endoftext|>",
            additional_special_tokens=turns)))
        (small / "chat_template.jinja").write_text(template)
        (small / "generation_config.json").write_text(json.dumps(SETTINGS | dict(eos_token_id=end, pad_token_id=end)))

    def json(self, name):
        return json.loads((self.path / name).read_text())

    def eval(self, run, *more):
        done = self.run(" ".join(["heddle eval", run, *more, "--json"]))
        return json.loads(done)


class ReleasedToExported(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="heddle-story-")
        cls.folders = []
        for family in ("qwen3", *OTHERS):
            path = pathlib.Path(cls.scratch.name) / family
            path.mkdir()
            cls.folders.append(Folder(family, path))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def needs(self, *packages):
        if torch is None:
            self.skipTest(WITHOUT)
        if "peft" in packages and peft is None:
            self.skipTest("no module named peft")

    def test_the_page_has_what_is_run(self):
        words = [command for _, commands in page() for command in commands]
        for word in ("heddle convert", "heddle eval", "heddle train", "heddle generate", "python3"):
            self.assertTrue(any(word in command for command in words), word)

    def test_it_learns(self):
        for folder in self.folders:
            with self.subTest(folder.family):
                before, after = (folder.eval(f"runs/{run}", "--no-heldout --text unseen.txt")["texts"][0]["loss"]
                                 for run in ("small", "continued"))
                self.assertLess(after["high"], before["low"])
                talk = ["data.source=talk.jsonl", "data.chat=true", "data.folder=data/talk", "data.heldout_fraction=0.2",
                        "train.sequence_length=64"]
                before = folder.eval("runs/continued --tasks task.jsonl", *(f"--set {key}" for key in talk))
                after = folder.eval("runs/tuned --tasks task.jsonl")
                self.assertEqual(before["texts"][0]["tokens"], after["texts"][0]["tokens"])
                self.assertLess(after["texts"][0]["loss"]["high"], before["texts"][0]["loss"]["low"])
                self.assertGreater(after["tasks"][0]["acc"]["mean"], before["tasks"][0]["acc"]["mean"])

    def test_what_came_beside_the_weights_leaves_with_them(self):
        for folder in self.folders:
            with self.subTest(folder.family):
                small = folder.path / "released/small"
                end, turn = (next(t["id"] for t in folder.json("released/small/tokenizer.json")["added_tokens"]
                                  if t["content"] == word) for word in ("<|endoftext|>", "<|im_end|>"))
                generation = folder.json("released/small/generation_config.json")
                for name, ends in (("continued", end), ("tuned", [end, turn]), ("tuned-bf16", [end, turn])):
                    made = folder.path / "released" / name
                    for beside in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
                        self.assertEqual((made / beside).read_text(), (small / beside).read_text(), f"{made}/{beside}")
                    expected = generation | dict(eos_token_id=ends)
                    self.assertEqual(folder.json(f"released/{name}/generation_config.json"), expected)
                    config = folder.json(f"released/{name}/config.json")
                    self.assertEqual({key: config[key] for key in TOKEN_IDS if key in config},
                                     {key: expected[key] for key in TOKEN_IDS if key in expected})
                    self.assertEqual(len(list(made.glob("*.index.json"))), name != "tuned")
                self.assertEqual(folder.json("released/adapter/adapter_config.json")["base_model_name_or_path"],
                                 str((folder.path / "released/continued").resolve()))

    def test_a_merged_model_goes_in_again(self):
        for folder in self.folders:
            with self.subTest(folder.family):
                folder.run("heddle convert released/tuned --to runs/again")
                own, again = (folder.eval(f"runs/{run} --no-heldout --text unseen.txt --set device.dtype=f32 --set train.sequence_length=64")
                              ["texts"][0]["loss"]["mean"] for run in ("tuned", "again"))
                self.assertAlmostEqual(again / own, 1, delta=1e-5)
                continued = folder.eval("runs/continued --no-heldout --text unseen.txt --set device.dtype=f32 --set train.sequence_length=64")
                self.assertGreater(abs(continued["texts"][0]["loss"]["mean"] / own - 1), 1e-3)    # adapters are in it

    def test_transformers_reads_the_configuration_as_it_was(self):
        self.needs()
        for folder in self.folders:
            with self.subTest(folder.family):
                was, made = (AutoConfig.from_pretrained(folder.path / "released" / name).to_dict() for name in ("small", "continued"))
                differ = {key: (was.get(key), made.get(key)) for key in was.keys() | made.keys() if was.get(key) != made.get(key)}
                self.assertLessEqual(differ.keys(), SPELT)

    def test_logits_of_the_merged_model(self):
        self.needs()
        for folder in self.folders:
            with self.subTest(folder.family):
                tokens = torch.randint(400, (2, 24), generator=torch.Generator().manual_seed(1))
                (folder.path / "tokens.json").write_text(json.dumps(tokens.tolist()))
                folder.run("heddle dump released/tuned --tokens tokens.json --out dump.safetensors")
                model = AutoModelForCausalLM.from_pretrained(folder.path / "released/tuned", attn_implementation="eager")
                self.assertEqual(model.dtype, torch.float32)
                with torch.no_grad():
                    expected = model(input_ids=tokens).logits
                found = load_file(folder.path / "dump.safetensors")["logits"]
                self.assertLess(((found - expected).norm() / expected.norm()).item(), LOGITS)

    def test_answers_of_the_run_are_those_of_the_merged_model(self):
        self.needs()
        for folder in self.folders:
            with self.subTest(folder.family):
                tokenizer = AutoTokenizer.from_pretrained(folder.path / "released/tuned")
                model = AutoModelForCausalLM.from_pretrained(folder.path / "released/tuned")
                self.assertIn(tokenizer.convert_tokens_to_ids("<|im_end|>"), model.generation_config.eos_token_id)
                for thread in (7, 42):
                    question = f"Where is thread {thread}?"
                    said = folder.run(f"echo '{question}' | heddle generate runs/tuned --chat --temperature 0 --tokens 8 --json "
                                      "--set device.dtype=f32")
                    ids = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True,
                                                        return_tensors="pt", return_dict=True)
                    answer = model.generate(**ids, do_sample=False, max_new_tokens=8)[0, ids["input_ids"].shape[1]:]
                    self.assertEqual(json.loads(said)["continuation"], tokenizer.decode(answer, skip_special_tokens=True))

    def test_the_run_was_trained_on_the_ids_of_transformers(self):
        self.needs()
        for folder in self.folders:
            with self.subTest(folder.family):
                tokenizer = AutoTokenizer.from_pretrained(folder.path / "released/small")
                samples = [json.loads(line) for line in (folder.path / "talk.jsonl").read_text().splitlines()]
                expected = [tokenizer.apply_chat_template(sample["messages"])["input_ids"] if "messages" in sample else
                            tokenizer(sample["prompt"] + sample["completion"])["input_ids"] + [tokenizer.eos_token_id]
                            for sample in samples]
                reader = MegatronReader(folder.path / "data/talk/text")
                self.assertEqual([list(reader[i]) for i in range(len(reader.lengths))], expected)

    def test_shards_are_the_merged_values_rounded(self):
        self.needs()
        for folder in self.folders:
            with self.subTest(folder.family):
                merged = load_file(folder.path / "released/tuned/model.safetensors")
                shards = {}
                for path in (folder.path / "released/tuned-bf16").glob("*.safetensors"):
                    shards |= load_file(path)
                self.assertEqual(shards.keys(), merged.keys())
                for name, tensor in shards.items():
                    self.assertTrue(torch.equal(tensor, merged[name].to(tensor.dtype)), name)
                    self.assertEqual(tensor.dtype, torch.float32 if name.endswith("correction_bias") else torch.bfloat16)

    def test_peft_has_the_same_logits(self):
        self.needs("peft")
        for folder in self.folders:
            with self.subTest(folder.family):    # the page itself compares them
                self.assertTrue(any("AutoPeftModelForCausalLM" in command for command in folder.said))
                adapter = load_file(folder.path / "released/adapter/adapter_model.safetensors")
                for name, tensor in adapter.items():
                    self.assertGreater(tensor.abs().max().item(), 0, name)    # it says something everywhere


if __name__ == "__main__":
    unittest.main()
