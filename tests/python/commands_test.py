#!/usr/bin/env python3
"""Functions of the Python module beside the commands of the program: equal answers, equal errors."""

import os
import random
import threading
import time
import unittest
import warnings

from module import CLOCKS, ROOT, Module, heddle, timeless  # noqa: F401

SCRIPT = ROOT / "tests/advisor/scripts/branches.sh"
POINTS = [
    {
        "source": "a",
        "model": "GPT-3 175B",
        "hw": "A100",
        "gpus": 384,
        "tp": 8,
        "pp": 8,
        "dp": 6,
        "mbs": 1,
        "gbs": 1536,
        "seq": 2048,
        "precision": "bf16",
        "recompute": "full",
        "tokens_per_s_per_gpu": 130,
    },
]


class CommandsTest(Module):
    def setUp(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def test_search_for_drawn_jobs(self):
        draw = random.Random(39)
        for _ in range(6):
            model = draw.choice(["DeepSeek-V2-Lite", "Qwen3-30B-A3B", "Llama-3-8B"])
            cluster, devices = draw.choice(["H100", "A100-80", "H800"]), draw.choice([8, 16, 64])
            batch, sequence = draw.choice([256, 512]), draw.choice([2048, 4096])
            top, routing, tp = draw.choice([1, 3]), draw.choice([0.0, 0.125]), draw.choice(["1", "1,2"])
            answer = heddle.search(
                model,
                cluster,
                devices,
                global_batch=batch,
                sequence=sequence,
                top=top,
                routing=routing,
                restrict={"tp": tp},
                threads=1,
            )
            with self.subTest(model=model, cluster=cluster, devices=devices):
                self.same(
                    answer,
                    "search",
                    "--model",
                    model,
                    "--cluster",
                    cluster,
                    "--devices",
                    devices,
                    "--global-batch",
                    batch,
                    "--sequence",
                    sequence,
                    "--top",
                    top,
                    "--routing",
                    routing,
                    "--restrict",
                    f"tp={tp}",
                    "--threads",
                    1,
                )
                for plan, told in zip(answer.plans, answer.data["plans"]):
                    self.assertEqual({key: getattr(plan, key) for key in told}, told)

    def test_search_from_a_script(self):
        answer = heddle.search_from(SCRIPT, "H100")
        self.same(answer, "search", "--from", SCRIPT, "--cluster", "H100")
        self.assertEqual(answer.best.step_s, answer.data["best"]["step_s"])

    def test_plan_of_drawn_jobs(self):
        draw = random.Random(40)
        for _ in range(3):
            model, devices = draw.choice(["Qwen3-30B-A3B", "Llama-3-8B"]), draw.choice([16, 64])
            answer = heddle.plan(model, "H100", devices, threads=1)
            with self.subTest(model=model, devices=devices):
                self.same(answer, "plan", model, "--cluster", "H100", "--devices", devices, "--threads", 1)
                self.assertEqual(answer.tokens_per_s.low, answer.data["tokens_per_s"]["low"])
        answer = heddle.plan(SCRIPT, "H100", beside=SCRIPT)
        self.same(answer, "plan", SCRIPT, "--cluster", "H100", "--beside", SCRIPT, status=0 if answer.fits else 1)
        self.assertEqual(answer.beside.speed_ratio, 1)

    def test_inspect(self):
        answer = heddle.inspect("tiny.toml", set={"train.microbatch": 1})
        self.same(answer, "inspect", "tiny.toml", "--set", "train.microbatch=1")
        curve = answer.over_step[0]
        self.assertTrue(all(len(each) == len(curve.at_seconds) for each in curve.bytes.values()))
        self.assertLess(max(map(sum, zip(*curve.bytes.values()))), answer.reserved_bytes + 1)
        self.same(heddle.inspect(model="DeepSeek-V3"), "inspect", "--model", "DeepSeek-V3")

    def test_a_configuration_as_a_mapping(self):
        model = dict(
            vocab_size=300,
            hidden_size=32,
            num_hidden_layers=2,
            intermediate_size=64,
            num_attention_heads=2,
            kv_lora_rank=16,
            qk_nope_head_dim=8,
            qk_rope_head_dim=8,
            v_head_dim=8,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            num_nextn_predict_layers=1,
            sequence_aux_loss_alpha=1e-4,
        )
        config = {
            "name": "tiny",
            "model": model,
            "data": {"source": "text.txt"},
            "train": {
                "steps": 6,
                "global_batch": 4,
                "microbatch": 2,
                "sequence_length": 32,
                "warmup_steps": 2,
                "decay_steps": 2,
            },
            "device": {"threads": 1},
        }
        self.assertEqual(heddle.inspect(config).parameters, heddle.inspect("tiny.toml").parameters)

    def test_schedules(self):
        draw = random.Random(41)
        names = heddle.schedule_names()
        self.assertEqual([each["schedule"] for each in self.told("schedule")], list(names))
        for name in draw.sample(sorted(names), 5):
            ranks, times = draw.choice([2, 4, 8]), [draw.randint(1, 5) for _ in range(3)]
            how = ["--ranks", ranks, "--microbatches", 4 * ranks, "--times", ",".join(map(str, times))]
            with self.subTest(name=name, ranks=ranks, times=times):
                answer = heddle.schedule(name, ranks=ranks, microbatches=4 * ranks, times=times)
                self.same(answer, "schedule", name, *how)
                self.heddle("schedule", name, *map(str, how), "--svg", "picture.svg")
                self.assertEqual(answer._repr_svg_(), (self.folder / "picture.svg").read_text())

    def test_predict(self):
        answer = heddle.predict(POINTS)
        header = list(POINTS[0])
        (self.folder / "points.csv").write_text(
            ",".join(header) + "\n" + "".join(",".join(str(row[key]) for key in header) + "\n" for row in POINTS)
        )
        from_file = heddle.predict("points.csv")
        self.same(from_file, "predict", "--points", "points.csv")
        self.assertEqual(answer.table, from_file.table)
        self.heddle("predict", "--points", "points.csv", "--out", "out.csv")
        self.assertIn(answer.table[0]["predicted_tokens_per_s_per_gpu"], (self.folder / "out.csv").read_text())

    def test_simulate(self):
        self.heddle("profile", "--seconds", "1", "--out", "machine.json")
        for more in ({}, {"jitter": 0.1, "draws": 3, "seed": 7}):
            flags = [f"--{key}={each}" for key, each in more.items()]
            self.same(
                heddle.simulate("tiny.toml", profile="machine.json", set={"mesh.dp": 2}, **more),
                "simulate",
                "tiny.toml",
                "--profile",
                "machine.json",
                "--set",
                "mesh.dp=2",
                *flags,
            )

    def test_errors_are_the_programs_lines(self):
        for call, arguments in [
            (
                lambda: heddle.search("Deepseek", "H100", 8, global_batch=8, sequence=128),
                [
                    "search",
                    "--model",
                    "Deepseek",
                    "--cluster",
                    "H100",
                    "--devices",
                    "8",
                    "--global-batch",
                    "8",
                    "--sequence",
                    "128",
                ],
            ),
            (
                lambda: heddle.inspect("tiny.toml", set={"train.stepz": 3}),
                ["inspect", "tiny.toml", "--set", "train.stepz=3"],
            ),
            (lambda: heddle.schedule("1f1c"), ["schedule", "1f1c"]),
            (lambda: heddle.simulate("none.toml"), ["simulate", "none.toml"]),
        ]:
            with self.assertRaises(heddle.Error) as raised:
                call()
            told = self.heddle(
                *arguments, "--json", status=2 if isinstance(raised.exception, heddle.InputError) else 1
            ).stderr
            self.assertEqual(told, f"heddle: {raised.exception}\n")
        self.assertTrue(issubclass(heddle.InputError, ValueError))

    def test_warnings(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            heddle.inspect("tiny.toml", set={"train.learning_rate": 9.0})
        told = self.heddle("inspect", "tiny.toml", "--set", "train.learning_rate=9.0").stderr
        self.assertEqual([f"heddle: warning: {each.message}\n" for each in caught], told.splitlines(keepends=True))

    def test_frames(self):
        for library in ("pandas", "polars"):
            try:
                __import__(library)
            except ModuleNotFoundError:
                self.skipTest(f"no {library}")
            frame = heddle.inspect("tiny.toml").to_frame(library)
            self.assertIn("weights", frame.columns)
            self.assertEqual(frame.shape[0], len(heddle.inspect("tiny.toml").over_step[0].at_seconds))
            self.assertEqual(heddle.schedule("1f1b", ranks=3).to_frame(library).shape, (3, 4))

    def test_progress_and_the_gil(self):
        bars = []

        class Bar:
            def __init__(self, **how):
                self.how, self.done, self.closed = how, 0.0, False
                bars.append(self)

            def update(self, by):
                self.done += by

            def set_description(self, text):
                self.how["desc"] = text

            def close(self):
                self.closed = True

        counted, ended = 0, threading.Event()

        def count():
            nonlocal counted
            while not ended.is_set():
                counted += 1
                time.sleep(0.001)

        other = threading.Thread(target=count)
        other.start()
        heddle.search("DeepSeek-V3", "H800", 512, global_batch=3840, sequence=4096, threads=1, progress=Bar)
        ended.set()
        other.join()
        self.assertGreater(counted, 2)
        self.assertEqual(len(bars), 1)
        self.assertTrue(bars[0].closed)
        self.assertLessEqual(bars[0].done, 100)

    def test_a_function_of_progress_may_fail(self):
        def broken(**how):
            raise ZeroDivisionError("in the bar")

        with self.assertRaisesRegex(ZeroDivisionError, "in the bar"):
            heddle.search("DeepSeek-V3", "H800", 512, global_batch=3840, sequence=4096, threads=1, progress=broken)
        self.assertTrue(heddle.search("Llama-3-8B", "H100", 8, global_batch=64, sequence=2048, top=1).plans)


if __name__ == "__main__":
    unittest.main()
