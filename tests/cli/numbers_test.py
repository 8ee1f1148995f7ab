#!/usr/bin/env python3
"""One value, one text: what a command prints, what it gives as JSON and what stands on its page are held to each other.

    numbers_test.py PATH_OF_HEDDLE
"""
import html
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from tiny_toml import TINY_MODEL, tiny_toml

HEDDLE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path("build/heddle").resolve()
MACHINE_SECONDS = 600    # after which a program hangs, however many others run

UNITS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
         "s": 1, "ms": 1e-3, "us": 1e-6, "\N{MICRO SIGN}s": 1e-6, "%": 1e-2}


class Page:
    """What a reader sees of a page, and the numbers that are embedded in it."""

    def __init__(self, path):
        self.text = pathlib.Path(path).read_text()
        self.figures = json.loads(re.search(r'id="figures">(.*?)</script>', self.text).group(1))

    @staticmethod
    def plain(markup):
        return html.unescape(re.sub(r"<[^>]+>", "", markup)).strip()

    def cards(self, part=None):
        found = re.findall(r'<div class="label">(.*?)</div><div class="value">(.*?)</div><div class="remark">(.*?)</div>',
                           part or self.text)
        return {self.plain(label): (self.plain(value), self.plain(remark)) for label, value, remark in found}

    def section(self, name):
        return re.search(rf'<section id="{name}">(.*?)</section>', self.text, re.S).group(1)

    def facts(self):
        rows = re.findall(r'<td class="key">(.*?)</td><td class="mono">(.*?)</td>', self.section("run"))
        return {self.plain(key): self.plain(value) for key, value in rows}

    def table(self, part, caption):
        table = re.search(rf"<caption>{caption}.*?</table>", part, re.S).group(0)
        return [[self.plain(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
                for row in re.findall(r"<tr>(.*?)</tr>", table)]

    def figure(self, part, title):
        """The data of the tooltips of a chart."""
        chart = re.search(rf'<span class="title">{title}.*?<script type="application/json">(.*?)</script>', part, re.S)
        return json.loads(chart.group(1))


class Numbers(unittest.TestCase):
    def rounds_to(self, number, text):
        """The text is what the number comes to at the text's own rounding."""
        value, _, unit = text.partition(" ")
        unit = re.sub(r"(tok|FLOP)/s$", "", unit)
        decimals = len(value.partition(".")[2])
        self.assertLessEqual(abs(float(value) - number / UNITS[unit]), 0.5000001 * 10**-decimals, (number, text))

    def heddle(self, *arguments, folder=None):
        done = subprocess.run([HEDDLE, *arguments], capture_output=True, text=True, timeout=MACHINE_SECONDS, cwd=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done


class OfARun(Numbers):
    CONFIG = tiny_toml({**TINY_MODEL, "hidden_size": 64, "num_hidden_layers": 4, "first_k_dense_replace": 1,
                        "intermediate_size": 96, "qk_nope_head_dim": 16, "v_head_dim": 16}, {"source": "texts"},
                       name="numbers", steps=24, global_batch=8, microbatch=2, sequence_length=32, eval_every=8,
                       eval_sequences=4, sample_tokens=4, trace_step=5, checkpoint_every=0)

    def run_of(self, folder, *more):
        folder = pathlib.Path(folder)
        (folder / "texts").mkdir(exist_ok=True)
        for i in range(200):
            (folder / f"texts/{i}.txt").write_text("\n".join(f"The {j}th of {i} lines, {i * j} letters." for j in range(40)))
        (folder / "c.toml").write_text(self.CONFIG)
        return self.heddle("train", "c.toml", "--set", "output=run", *more, folder=folder), folder / "run"

    def held_together(self, json_text, terminal, run):
        """The summary's numbers, or its text, beside the report's and the metrics'."""
        page = Page(run / "report.html")
        cards, figures = page.cards(), page.figures
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        loss, held_out = cards["Loss of the last step"][0], cards["Held-out loss"][0]
        rate, flops = cards["Tokens per second"][0], cards["Model FLOP/s"][0]
        peak = cards["Peak memory"][0]
        if terminal:
            said = re.search(r"done after (\d+) steps in (.*): loss (.*), held-out (.*)\nmedian (.*), (.*); arena (.*) "
                             r"\(predicted (.*)\)", terminal)
            self.assertEqual(said.group(3), loss)
            self.assertEqual(said.group(4), held_out)
            self.assertEqual((said.group(5), said.group(6), said.group(7)), (rate, flops, peak))
            self.assertEqual(page.facts()["duration"].split(",")[0], said.group(2))
            self.assertIn(said.group(2), page.plain(re.search(r'class="subtitle">(.*?)</div>', page.text).group(1)))
        else:
            summary = json.loads(json_text)
            for key, known in (("loss", loss), ("held_out_loss", held_out), ("tokens_per_s", rate), ("flops_per_s", flops),
                               ("reserved_bytes", peak)):
                self.assertEqual(summary[key], figures[key], key)
                self.rounds_to(summary[key], known)
        self.assertEqual(figures["loss"], steps[-1]["lm_loss"])
        self.assertEqual(figures["held_out_loss"], [s["held_out_loss"] for s in steps if "held_out_loss" in s][-1])
        self.assertEqual(figures["reserved_bytes"], max(s["arena_reserved_peak_bytes"] for s in steps))
        rates = sorted(s["tokens_per_s"] for s in steps)
        self.assertIn(figures["tokens_per_s"], rates[11:13])  # of all 24
        # The step's memory is that of the rank that the card is of, and its picture reaches what its words say.
        part = page.section("memory")
        self.assertEqual(set(re.findall(r">the arena (.*?) *<", part)), {peak})
        layers = page.figure(part, "Device memory: .*?measured")["series"]
        highest = max(sum(heights) for heights in zip(*(layer["y"] for layer in layers)))
        self.rounds_to(highest, re.search(r"It holds most, (.*?), at ", part).group(1))
        self.assertLessEqual(highest, figures["reserved_bytes"])
        # What is listed at the peak adds up, and each line's bytes follow from its type and shape, or it says why not.
        table = page.table(part, "Tensors at the peak")
        sizes = {"f32": 4, "bf16": 2, "f64": 8, "i32": 4, "u8": 1, "i64": 8}
        for _, dtype, shape, _, layout, size, _ in table[:-1]:
            if not dtype or layout:
                continue
            self.assertNotIn("rows", shape)
            count = 1
            for n in shape.split(" x "):
                count *= int(n or 1)
            self.rounds_to(count * sizes[dtype], size)
        facts = page.facts()
        for fact in ("began", "written", "duration", "tokens", "data", "ranks", "host", "processor", "heddle", "command"):
            self.assertTrue(facts[fact], fact)
        self.assertIn("train c.toml", facts["command"])
        return page

    def test_a_rank_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            done, run = self.run_of(folder)
            page = self.held_together(None, done.stdout, run)
            progress = [line for line in done.stderr.splitlines() if line.startswith("step 24/24")][0]
            self.assertIn(f"loss {page.cards()['Loss of the last step'][0]}", progress)
            self.assertIn(f"step 24: held-out loss {page.cards()['Held-out loss'][0]}", done.stderr)

    def test_a_pipeline(self):
        with tempfile.TemporaryDirectory() as folder:
            done, run = self.run_of(folder, "--ranks", "2", "--set", "mesh.pp=2", "--json")
            page = self.held_together(done.stdout, None, run)
            self.assertIn("of the fullest rank", page.cards()["Peak memory"][1])
            self.assertIn("of rank", page.section("memory"))
            self.assertIn("2, threads of one process", page.facts()["ranks"])
            pipeline = page.section("pipeline")
            self.assertIn("as it ran", pipeline)
            self.assertIn("as predicted", pipeline)

    def test_a_run_that_went_on(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_of(folder, "--steps", "12")
            done = self.heddle("train", "c.toml", "--set", "output=run", "--resume", "--json", folder=folder)
            page = self.held_together(done.stdout, None, pathlib.Path(folder) / "run")
            self.assertIn("of them 12 before", page.facts()["steps"])


class OfASearch(Numbers):
    ASKED = ("--model", "DeepSeek-V2-Lite", "--cluster", "H800", "--devices", "32", "--global-batch", "256",
             "--sequence", "4096", "--top", "4", "--memory", "30GiB")

    def page_holds_together(self, page, number):
        figures, part = page.figures[number], page.section(f"plan-{number + 1}")
        cards = page.cards(part)
        self.rounds_to(figures["step_s"], cards["Step"][0])
        self.rounds_to(figures["tokens_per_s_per_device"], cards["Tokens/s a device"][0])
        self.rounds_to(figures["model_flops_utilization"], cards["Model FLOPs utilization"][0])
        self.rounds_to(figures["peak_bytes"], cards["Peak memory"][0])
        self.assertEqual("fits" in cards["Peak memory"][1], figures["peak_bytes"] <= figures["memory_bytes"])
        self.assertAlmostEqual(sum(figures["step_parts_s"].values()) / figures["step_s"], 1, 9)
        self.assertAlmostEqual(sum(figures["memory_parts_bytes"].values()) / figures["peak_bytes"], 1, 6)
        for s in figures["sensitivities"]:
            self.assertLessEqual(s["less"], 1.25, s)
            self.assertGreaterEqual(s["more"], 1 / 1.2 - 1e-9, s)
        for share in re.findall(r"(\d+) % of the step", cards["Bound by"][1]):
            self.assertLessEqual(int(share), 100)
        # The memory's curve reaches the peak of the card, not more, and ends with the step.
        memory = page.figure(part, "Memory of rank")
        height = [sum(layer) for layer in zip(*(s["y"] for s in memory["series"]))]
        self.rounds_to(max(height), cards["Peak memory"][0])
        self.assertAlmostEqual(memory["series"][0]["x"][-1] * 1e-6 / figures["step_s"], 1, 4)
        if "pipeline_s" in figures and "The pipeline" in part:
            lanes = page.figure(part, "The pipeline")
            self.assertAlmostEqual(lanes["length"] * 1e-6 / figures["step_s"], 1, 6)
            ends = max(a + b for a, b in zip(lanes["spans"][1::10], lanes["spans"][2::10]))
            self.assertAlmostEqual(ends * 1e-6 / figures["pipeline_s"], 1, 4)

    def test_table_json_and_page(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plans.html"
            told = self.heddle("search", *self.ASKED, "--explain", path).stdout
            page = Page(path)
            given = json.loads(self.heddle("search", *self.ASKED, "--json").stdout)
        rows = [re.split(r"\s{2,}", line.strip()) for line in told.splitlines() if re.match(r"\s*\d+  tp ", line)]
        self.assertEqual(len(rows), 4)
        head = re.split(r"\s{2,}", told.splitlines()[0].strip())
        for i, (row, plan) in enumerate(zip(rows, given["plans"])):
            cell = dict(zip(["", *head], row))
            cards, figures = page.cards(page.section(f"plan-{i + 1}")), page.figures[i]
            self.assertEqual(cell["step"], cards["Step"][0])
            self.assertEqual(cell["tokens/s/device"], cards["Tokens/s a device"][0])
            self.assertEqual(cell["MFU"], cards["Model FLOPs utilization"][0])
            self.assertEqual(cell["memory"], cards["Peak memory"][0])
            for key in ("step_s", "tokens_per_s_per_device", "model_flops_utilization", "peak_bytes", "bubble_s",
                        "exposed_communication_s"):
                self.assertAlmostEqual(plan[key] / figures[key] if figures[key] else 1, 1, 9, key)
            self.assertAlmostEqual(sum(plan["waterfall_s"].values()) / plan["step_s"], 1, 9)
            self.rounds_to(plan["bubble_s"] / plan["step_s"], cell["bubble"])
            self.rounds_to(plan["exposed_communication_s"] / plan["step_s"], cell["exposed"])
            self.page_holds_together(page, i)

    def test_a_script_and_what_is_better(self):
        script = """
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu --disable-bias-linear --normalization RMSNorm \
  --vocab-size 128256 --untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 8192 --bf16 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --use-distributed-optimizer --overlap-grad-reduce \
  --overlap-param-gather --micro-batch-size 1 --global-batch-size 128 --hidden-dropout 0 --attention-dropout 0
"""
        with tempfile.TemporaryDirectory() as folder:
            path, run = pathlib.Path(folder) / "plans.html", pathlib.Path(folder) / "run.sh"
            run.write_text(script)
            asked = ("search", "--from", run, "--cluster", "H100")
            told = self.heddle(*asked, "--explain", path).stdout
            page = Page(path)
            given = json.loads(self.heddle(*asked, "--json").stdout)
        self.assertTrue(given["changes"], "nothing better: the test lacks what it compares")
        best, job = (page.cards(page.section(f"plan-{i}")) for i in (1, 2))
        said = re.search(r"\nstep (.*?) \((.*?) to (.*?), nine of ten.*?\), (.*?) tokens/s a device, MFU (.*)\n", told)
        self.assertEqual((said.group(1), said.group(4), said.group(5)),
                         (job["Step"][0], job["Tokens/s a device"][0], job["Model FLOPs utilization"][0]))
        self.assertIn(f"{best['Step'][0]} a step in place of {job['Step'][0]}", told)
        self.assertIn(f"\npeak {job['Peak memory'][0]} of ", told)
        for i, key in enumerate(("best", "job")):
            self.assertAlmostEqual(given[key]["step_s"] / page.figures[i]["step_s"], 1, 9)
            self.assertAlmostEqual(given[key]["peak_bytes"] / page.figures[i]["peak_bytes"], 1, 9)
            self.page_holds_together(page, i)
        self.assertAlmostEqual(given["best"]["step_s"] / given["job"]["step_s"], given["step_ratio"], 9)
        # The tables of the terminal are the page's.
        for row in page.table(page.section("plan-2"), "The step when"):
            self.assertRegex(told, re.escape(row[0]) + r"\s+" + re.escape(row[1]) + r"\s+" + re.escape(row[2]))
        for row in page.table(page.section("plan-2"), "Memory of the fullest"):
            self.assertRegex(told, re.escape(row[0]) + r"\s+" + re.escape(row[1]) + r"\s+" + re.escape(row[2]))


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    unittest.main()
