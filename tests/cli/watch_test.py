"""Runs that are watched: beside each other, in a terminal, by MLflow and by Prometheus."""
import json
import os
import pty
import re
import subprocess
import time
import unittest
import urllib.request

from program import HEDDLE, MACHINE_SECONDS, Program


class Watch(Program):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, more in (("one", ()), ("two", ("--set", "train.learning_rate=0.02"))):
            subprocess.run([HEDDLE, "train", "tiny.toml", "--set", f"output=sets/{name}", "--mlflow", "mlruns", *more],
                           cwd=cls.folder, check=True, capture_output=True)

    def steps(self, name):
        return [json.loads(line) for line in (self.folder / f"sets/{name}/metrics.jsonl").read_text().splitlines()]

    def test_runs_beside_each_other(self):
        told = self.heddle("report", "sets/one", "sets/two/", "--html", "runs.html").stdout
        given = json.loads(self.heddle("report", "sets/one", "sets/two", "--json").stdout)
        page = (self.folder / "runs.html").read_text()
        self.assertEqual(json.loads(re.search(r'id="figures">(.*?)</script>', page).group(1)),
                         [{k: v for k, v in run.items() if k not in ("folder", "name")} for run in given["runs"]])
        for name, run in zip(("one", "two"), given["runs"]):
            self.assertEqual(run["name"], name)
            self.assertEqual(run["loss"], self.steps(name)[-1]["lm_loss"])
            row = re.split(r"\s{2,}", re.search(rf"^{name} .*$", told, re.M).group(0).strip())
            self.assertEqual(row[1], str(self.steps(name)[-1]["step"]))
            self.assertIn(f"{run['recent_loss']:.4f}", row)
            self.assertIn(row[3], page)
        self.assertEqual(set(given["settings"]), {"output", "train.learning_rate"})
        self.assertIn("train.learning_rate", told)
        for title in ("Loss over tokens", "Loss over time", "Tokens per second"):
            chart = re.search(rf'<span class="title">{title}.*?<script type="application/json">(.*?)</script>', page, re.S)
            curves = json.loads(chart.group(1))["series"]
            self.assertEqual([curve["label"] for curve in curves], ["one", "two"], title)
            for name, curve in zip(("one", "two"), curves):
                self.assertEqual(len(curve["y"]), len(self.steps(name)), title)

    def test_report_refuses(self):
        self.refused("nowhere: no run folder (it has no config.toml)", "report", "sets/one", "nowhere")
        self.refused("12 runs: at most 11 go on one page", "report", *["sets/one"] * 12)
        self.refused("report: RUN is required (see heddle report --help)", "report")

    def test_a_look_at_a_run(self):
        told = self.heddle("watch", "sets/one").stdout
        last = self.steps("one")[-1]
        self.assertIn(f"{last['step']}/{last['step']}", told)
        self.assertIn(f"loss {last['lm_loss']:.4f}", told)
        self.assertIn("ended", told)
        self.refused("runs: no run is there; name a run's folder", "watch")

    def test_a_run_that_trains_is_followed(self):
        run = subprocess.Popen([HEDDLE, "train", "tiny.toml", "--steps", "1000000", "--set", "output=sets/long",
                                "--set", "train.checkpoint_every=0", "--prometheus", "127.0.0.1:0"],
                               cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            port = None
            for line in run.stderr:
                if said := re.search(r"Prometheus: port (\d+)", line):
                    port = said.group(1)
                if line.startswith("step "):
                    break
            ours, theirs = pty.openpty()
            watch = subprocess.Popen([HEDDLE, "watch", "sets/long"], cwd=self.folder, stdout=theirs,
                                     env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"})
            os.close(theirs)
            seen, end = "", time.monotonic() + MACHINE_SECONDS
            while seen.count("\x1b[J") < 2:  # drawn anew twice
                self.assertLess(time.monotonic(), end)
                seen += os.read(ours, 1 << 16).decode(errors="replace")
            self.assertIn("trains: process", seen)
            self.assertIn("tokens per second", seen)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                self.assertRegex(answer.read().decode(), r'heddle_lm_loss\{run="tiny"\} \d')
            run.terminate()
            run.stderr.read()
            self.assertEqual(run.wait(MACHINE_SECONDS), 130)
            try:
                while os.read(ours, 1 << 16):
                    pass
            except OSError:  # the terminal is gone
                pass
            self.assertEqual(watch.wait(MACHINE_SECONDS), 0)
        finally:
            run.kill()
            run.wait()
            run.stderr.close()

    def test_mlflow_reads_its_files(self):
        runs = sorted((self.folder / "mlruns").glob("*/*/meta.yaml"))
        self.assertEqual(len(runs), 2)
        for run in runs:
            name = (run.parent / "tags/mlflow.runName").read_text()
            lines = (run.parent / "metrics/lm_loss").read_text().splitlines()
            self.assertEqual([(int(line.split()[2]), float(line.split()[1])) for line in lines],
                             [(step["step"], step["lm_loss"]) for step in self.steps(name)])
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # which MLflow 3 asks for before it reads a file store
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            self.skipTest("mlflow is not installed")
        client = MlflowClient((self.folder / "mlruns").as_uri())
        experiment = client.get_experiment_by_name("tiny")
        found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
        self.assertEqual(set(found), {"one", "two"})
        self.assertEqual(found["two"].data.params["train.learning_rate"], "0.02")
        self.assertEqual(found["one"].info.status, "FINISHED")
        self.assertAlmostEqual(found["one"].data.metrics["lm_loss"], self.steps("one")[-1]["lm_loss"])

    def test_how_much_is_said(self):
        def said(*flags):
            return self.heddle("train", "tiny.toml", "--set", f"output=sets/said{len(flags)}{flags[0]}", *flags).stderr

        self.assertEqual(said("--quiet"), "")
        self.assertEqual(len(re.findall(r"^step \d+/", said("--verbose"), re.M)), self.steps("one")[-1]["step"])
        for line in said("--timestamps").splitlines():
            self.assertRegex(line, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ")
        self.refused("train: --quiet excludes --verbose", "train", "tiny.toml", "--quiet", "--verbose")
        self.refused("--prometheus: '9464' is no address; a number and a port are expected, as 127.0.0.1:9464 or "
                     "[::1]:9464", "train", "tiny.toml", "--set", "output=sets/no", "--prometheus", "9464")


if __name__ == "__main__":
    unittest.main()
