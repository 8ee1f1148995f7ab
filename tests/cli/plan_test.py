#!/usr/bin/env python3
"""Runs `heddle plan` as a user does: for models, scripts and configurations.

    plan_test.py PATH_OF_HEDDLE
"""
import json
import os
import pathlib
import re
import unittest
from unittest import mock

from program import Program

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = str(ROOT / "examples/launch/qwen3_30b.sh")
ASKED = ("--cluster", "H100", "--devices", "32", "--global-batch", "256", "--sequence", "4096")


class Plan(Program):
    def plan(self, *arguments, status=0):
        return json.loads(self.heddle("plan", *arguments, "--json", status=status).stdout)

    def test_a_model(self):
        found = self.plan("Qwen3-30B-A3B", *ASKED)
        self.assertTrue(found["fits"])
        self.assertEqual((found["kind"], found["devices"], found["trainer"]), ("model", 32, "megatron"))
        self.assertEqual(sum(r["ranks"] for r in found["ranks"]), 32)
        self.assertEqual(max(r["peak_bytes"] for r in found["ranks"]), found["peak_bytes"])
        self.assertLessEqual(found["peak_bytes"], found["memory_bytes"])
        self.assertAlmostEqual(sum(found["memory_parts_bytes"].values()) / found["peak_bytes"], 1, 6)
        for key in ("step_s", "tokens_per_s"):
            self.assertLess(found[key]["low"], found[key]["value"])
            self.assertLess(found[key]["value"], found[key]["high"])
        self.assertAlmostEqual(found["tokens_per_s"]["value"] * found["step_s"]["value"] / (256 * 4096), 1, 6)
        # The script that is written reads back as the plan.
        self.heddle("plan", "Qwen3-30B-A3B", *ASKED, "--out", "model.sh")
        read = self.plan("model.sh", "--cluster", "H100")
        self.assertEqual((read["layout"], read["schedule"]), (found["layout"], found["schedule"]))
        # Names as people type them are the same model.
        for name in ("qwen3_30b_a3b", "Qwen/Qwen3-30B-A3B"):
            self.assertEqual(self.plan(name, *ASKED)["layout"], found["layout"])
        text = self.heddle("plan", "Qwen3-30B-A3B", *ASKED).stdout
        self.assertIn(f"{found['tokens_per_s_per_device']:.0f} a device", text)
        self.assertIn(found["layout"], re.sub(r"\s+", " ", text))
        self.assertLessEqual(max(map(len, text.splitlines())), 120)
        self.assertNotIn("\x1b", text)

    def test_each_change_is_one_and_is_what_its_words_say(self):
        found = self.plan(SCRIPT, "--cluster", "H100")
        self.assertEqual((found["kind"], found["devices"]), ("script", 32))
        self.assertEqual(len(found["changes"]), 3)
        ratios = [c["speed_ratio"] for c in found["changes"]]
        self.assertEqual(ratios, sorted(ratios, reverse=True))
        self.assertGreater(ratios[0], 1)
        # The script with the words of a change has the speed that the change promises.
        text = pathlib.Path(SCRIPT).read_text()
        lone = next(c for c in found["changes"] if c["change"].startswith("microbatch"))
        self.assertEqual([w.split()[0] for w in lone["add"]], ["--micro-batch-size"])
        size = lone["add"][0].split()[1]
        changed, times = re.subn(r"--micro-batch-size \d+", f"--micro-batch-size {size}", text)
        self.assertEqual(times, 1)
        (self.folder / "changed.sh").write_text(changed)
        then = self.plan("changed.sh", "--cluster", "H100")
        self.assertEqual(then["microbatch"], int(size))
        self.assertAlmostEqual(then["peak_bytes"] / lone["peak_bytes"], 1, 6)
        # The correction by measured jobs is of each job, in a change as in a job of its own.
        again = self.plan("changed.sh", "--beside", SCRIPT, "--cluster", "H100", "--slower", "99")
        self.assertAlmostEqual(again["beside"]["speed_ratio"] / lone["speed_ratio"], 1, delta=0.01)
        better = found["better"]
        self.assertGreaterEqual(better["speed_ratio"], ratios[0])
        self.heddle("plan", SCRIPT, "--cluster", "H100", "--out", "better.sh")
        self.assertEqual(self.plan("better.sh", "--cluster", "H100")["layout"], better["layout"])

    def test_beside_another_job(self):
        text = pathlib.Path(SCRIPT).read_text()
        (self.folder / "before.sh").write_text(text)
        same = self.plan("before.sh", "--beside", "before.sh", "--cluster", "H100")
        self.assertEqual(same["beside"]["speed_ratio"], 1)
        self.heddle("plan", "before.sh", "--cluster", "H100", "--out", "faster.sh")
        slow = self.plan("before.sh", "--beside", "faster.sh", "--cluster", "H100", status=1)
        self.assertLess(slow["beside"]["speed_ratio"], 0.9)
        self.plan("before.sh", "--beside", "faster.sh", "--cluster", "H100", "--slower", "99")
        self.refused("plan: --slower needs --beside", "plan", "before.sh", "--slower", "3")

    def test_beside_a_job_without_a_plan_has_no_speed(self):
        few = ("--devices", "2", "--global-batch", "64", "--cluster", "H100")
        both = self.plan("Qwen3-30B-A3B", *few, "--beside", "Qwen3-30B-A3B", status=1)
        self.assertEqual(both["beside"], {"subject": "Qwen3-30B-A3B", "fits": False})
        text = self.heddle("plan", "Llama-3-8B", "--devices", "2", "--global-batch", "64", "--cluster", "H200",
                           "--beside", "Qwen3-235B-A22B").stdout
        self.assertIn("Qwen3-235B-A22B: nothing fits, so there is no speed to compare", re.sub(r"\s+", " ", text))
        self.assertNotIn("inf", text)

    def test_products_in_eight_bits_are_those_of_the_option(self):
        whole = self.plan("Qwen3-30B-A3B", *ASKED)
        narrow = next((c for c in whole["changes"] if c["change"] == "matrix products in fp8"), None)
        text = self.heddle("plan", "Qwen3-30B-A3B", *ASKED, "--precision", "fp8").stdout
        self.assertIn("of bf16's peak", re.sub(r"\s+", " ", text))
        found = self.plan("Qwen3-30B-A3B", *ASKED, "--precision", "fp8")
        self.assertEqual(found["precision"], "fp8")
        if narrow and found["layout"] == whole["layout"]:
            ratio = found["tokens_per_s"]["value"] / whole["tokens_per_s"]["value"]
            self.assertAlmostEqual(ratio / narrow["speed_ratio"], 1, delta=0.01)

    def test_a_good_script_is_left_as_it_is(self):
        self.heddle("plan", "Qwen3-30B-A3B", *ASKED, "--out", "good.sh")
        told = self.heddle("plan", "good.sh", "--cluster", "H100", "--out", "none.sh")
        self.assertTrue(told.stdout.endswith("nothing is written to none.sh: no better plan was found\n"), told.stdout)
        self.assertFalse((self.folder / "none.sh").exists())

    def test_no_layout_divides(self):
        said = self.heddle("plan", "Qwen3-30B-A3B", "--cluster", "H100", "--devices", "97", "--global-batch", "64",
                           status=1).stdout
        self.assertIn("No layout divides the model and 64 sequences over 97 devices.", said)

    def test_nothing_fits(self):
        found = self.plan("Qwen3-30B-A3B", "--cluster", "H100", "--devices", "2", "--out", "none.sh", status=1)
        self.assertFalse(found["found"] or found["fits"])
        self.assertEqual(found["nothing_fits"]["fewest_devices"], 8)
        self.assertIn("GiB", found["nothing_fits"]["nearest"])
        self.assertFalse((self.folder / "none.sh").exists())
        text = self.heddle("plan", "Qwen3-30B-A3B", "--cluster", "H100", "--devices", "2", status=1).stdout
        self.assertEqual(text.count("Nothing fits"), 1)
        self.assertIn("8 x H100 are the fewest that train it.", text)
        least = self.plan("Qwen3-30B-A3B", "--cluster", "H100")
        self.assertEqual(least["devices"], 8)
        self.assertIn("devices 8, the fewest that train it (--devices)", least["assumed"])

    def test_a_configuration_here_is_counted_as_inspect_counts_it(self):
        found = self.plan("tiny.toml")
        self.assertEqual((found["kind"], found["bytes_are"]), ("config", "counted"))
        told = json.loads(self.heddle("inspect", "tiny.toml", "--json").stdout)
        self.assertEqual([r["peak_bytes"] for r in found["ranks"]], [r["reserved_bytes"] for r in told["ranks"]])
        changes = found["changes"]
        self.assertEqual(len({c["change"] for c in changes}), len(changes))
        for change in changes:
            self.assertTrue(change["add"] and all("=" in word for word in change["add"]))
        few = self.plan("tiny.toml", "--set", "device.memory_bytes=2MB", status=1)
        self.assertTrue(few["found"])
        self.assertFalse(few["fits"])

    def test_a_configuration_on_a_cluster_is_what_was_written(self):
        self.heddle("plan", "Qwen3-30B-A3B", *ASKED, "--for", "heddle", "--out", "plan.toml")
        made = self.plan("Qwen3-30B-A3B", *ASKED, "--for", "heddle")
        read = self.plan("plan.toml", "--cluster", "H100")
        for key in ("layout", "schedule", "recompute", "global_batch", "sequence", "devices"):
            self.assertEqual(read[key], made[key], key)
        self.assertAlmostEqual(read["step_s"]["value"] / made["step_s"]["value"], 1, 2)
        # A better plan has words that the file has not.
        text = (self.folder / "plan.toml").read_text()
        for word in read.get("better", {"add": []})["add"]:
            key, value = word.split("=", 1)
            self.assertNotRegex(text, rf"(?m)^{re.escape(key.split('.')[-1])} = \"?{re.escape(value)}\"?$")
        self.assertEqual(len(set(read["notes"])), len(read["notes"]))
        self.assertTrue(all(isinstance(r["peak_bytes"], int) for r in read["ranks"]))

    def test_the_cache_goes_before_a_published_model(self):
        hub = self.folder / "hf/hub"
        held = hub / "models--me--Qwen3-8B"
        snapshot = held / "snapshots/1"
        snapshot.mkdir(parents=True)
        config = json.loads((ROOT / "tests/fixtures/qwen3/config.json").read_text())
        (snapshot / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
        (held / "refs").mkdir()
        (held / "refs/main").write_text("1")
        few = ("--cluster", "H100", "--devices", "8", "--global-batch", "64", "--sequence", "4096", "--json")
        with mock.patch.dict(os.environ, {"HF_HUB_CACHE": str(hub)}):
            own = self.heddle("plan", "me/Qwen3-8B", *few)
            self.assertNotIn("taken as", own.stderr)
            other = self.heddle("plan", "you/Qwen3-8B", *few)
            self.assertIn("you/Qwen3-8B: taken as the published Qwen3-8B; the cache has no you/Qwen3-8B\n", other.stderr)
            self.assertNotEqual(json.loads(own.stdout)["parameters"], json.loads(other.stdout)["parameters"])
            self.refused(f"model 'me/Qwen3-8B@v2': the cache {hub} has no config.json of that revision; nothing is "
                         "downloaded: `hf download me/Qwen3-8B --revision v2` does it", "plan", "me/Qwen3-8B@v2")

    def test_out_takes_the_place_of_no_other_thing(self):
        (self.folder / "in.sh").write_text(pathlib.Path(SCRIPT).read_text())
        os.mkfifo(self.folder / "pipe")
        (self.folder / "link").symlink_to("pipe")
        before = (self.folder / "in.sh").read_text()
        self.refused("plan: --out ./in.sh is in.sh, which is read; name another file", "plan", "in.sh", "--out", "./in.sh")
        self.refused("plan: cannot write pipe: no plain file", "plan", "in.sh", "--out", "pipe")
        self.refused("plan: --out link is a symbolic link; name the file that is to be written", "plan", "in.sh", "--out",
                     "link")
        self.assertEqual((self.folder / "in.sh").read_text(), before)
        self.assertTrue((self.folder / "pipe").is_fifo())

    def test_refusals_are_one_line(self):
        self.refused("model 'Qwen3-30B-A4B' is not known and no folder with a config.json, did you mean "
                     "'Qwen3-30B-A3B'?", "plan", "Qwen3-30B-A4B")
        self.refused("--cluster: no accelerator 'H1000', did you mean 'H100'?", "plan", "Qwen3-30B-A3B", "--cluster",
                     "H1000")
        for name, said in (("H100-SXM", "no accelerator 'H100-SXM', did you mean 'H100'?"),
                           ("h100-80gb", "no accelerator 'h100-80gb', did you mean 'H100'?"),
                           ("i3", "'i3' may be any of MI300X, MI325X, MI350X, MI355X, Gaudi3"),
                           ("500", "'500' may be any of H100-500W, C500")):
            self.refused(f"--cluster: {said}", "plan", "Qwen3-30B-A3B", "--cluster", name)
        self.refused("plan: --cluster is empty, accepted: an accelerator such as H800, or a TOML file of a cluster", "plan",
                     "Qwen3-30B-A3B", "--cluster", "")
        self.refused("model 'gpt-oss' is not known and no folder with a config.json, may be any of GPT-OSS-120B, "
                     "GPT-OSS-20B", "plan", "gpt-oss")
        self.refused("no model is named, accepted: names such as Llama-3-8B, Qwen3-30B-A3B, DeepSeek-V3, or a folder with a "
                     "config.json", "plan", "")
        self.refused("plan: no file 'tiny.tml.toml', did you mean 'tiny.toml'?", "plan", "tiny.tml.toml")
        (self.folder / "qwen.json").write_text("{}")
        self.refused(f"plan: '{self.folder / 'qwen.json'}' is no subject, accepted: a model's folder or the config.json in it", "plan",
                     str(self.folder / "qwen.json"))
        self.refused(f"plan: the folder '{self.folder}' has neither config.json (a model) nor config.toml (a run)", "plan",
                     str(self.folder))
        self.refused("plan: tiny.toml is a configuration of heddle, not of megatron", "plan", "tiny.toml", "--for",
                     "megatron")
        for option, value, whose in (("--precision", "fp8", "a model"), ("--routing", "1", "a model")):
            self.refused(f"plan: {option} is of {whose}, {SCRIPT} is a script, which says its own", "plan", SCRIPT,
                         option, value)
            self.refused(f"plan: {option} is of {whose}, tiny.toml is a configuration, which says its own", "plan",
                         "tiny.toml", option, value)
        self.refused("plan: --imbalance is of a script, Llama-3-8B is a model", "plan", "Llama-3-8B",
                     "--imbalance", "1")
        self.refused("plan: --set is of a script or a configuration, Llama-3-8B is a model", "plan", "Llama-3-8B",
                     "--set", "tp=3")
        self.refused("plan: A100-80 has no products in fp8, accepted: bf16, fp16", "plan", "Llama-3-8B", "--cluster",
                     "A100-80", "--precision", "fp8")
        self.refused("plan: H100 has no products in nvfp4, accepted: bf16, fp16, fp8, mxfp8, block8", "plan",
                     "Llama-3-8B", "--precision", "nvfp4")
        for subject in ("Llama-3-8B", SCRIPT, "tiny.toml"):
            self.refused("--memory 80 is 80 bytes; 80GiB?", "plan", subject, "--memory", "80", "--cluster", "H100")
        (self.folder / "not.sh").write_text("echo nothing\n")
        said = self.heddle("plan", "not.sh", status=2).stderr
        self.assertEqual(len(said.strip().splitlines()), 1)
        self.assertIn("not.sh", said)


if __name__ == "__main__":
    unittest.main()
