#!/usr/bin/env python3
"""Chooses the variances of src/advisor/points/traits.cpp, by the rows of calibration.csv beside it.

    tools/choose_covariance.py            errors of the variances there
    tools/choose_covariance.py --rounds 2 descends on them, and prints better ones
    tools/choose_covariance.py --memory   likewise of memory's, by memory_calibration.csv

The loss is the mean of |ln(predicted / measured)|^0.7 of rows that are predicted without themselves, without their
model and without their source, so that a few odd rows weigh little. Needs numpy (Debian's python3-numpy).
"""
import argparse
import csv
import math
import pathlib
import re

import numpy

POINTS = pathlib.Path(__file__).resolve().parent.parent / "src/advisor/points"
LAYOUT = "sequence tp pp ep cp dp microbatch batches billions chunks recomputed frozen".split()
SHARES = "products attention traffic launches tensor exchange context pipeline data bubble optimizer".split()
MAKERS = (("Ascend", 1), ("MI", 2), ("Gaudi", 3), ("TPU", 4), ("C500", 5))
FAMILIES = (("Ascend", 3), ("MI", 4), ("Gaudi", 5), ("TPU", 6), ("C500", 7), ("A100", 0), ("H", 1), ("B", 2), ("GB", 2))
BITS = {"bf16": 16, "fp16": 16, "nvfp4": 4}
WEIGHTS = {"rows": 1.0, "models": 0.7, "documents": 1.2}


def first(table, name, otherwise=0):
    return next((value for start, value in table if name.startswith(start)), otherwise)


class Rows:
    def __init__(self, memory):
        self.noise_name = "kMemoryNoise" if memory else "kNoise"
        rows = list(csv.DictReader(open(POINTS / ("memory_calibration.csv" if memory else "calibration.csv"))))
        self.y = numpy.array([float(r["log_ratio"]) for r in rows])
        self.noise = numpy.array([float(r["noise"]) for r in rows])  # by the variances that made the file

        def same(key):
            codes = numpy.unique([str(key(r)) for r in rows], return_inverse=True)[1]
            return (codes[:, None] == codes[None, :]).astype(float)

        def squared(columns):
            x = numpy.array([[float(r[c]) for c in columns] for r in rows])
            return ((x[:, None, :] - x[None, :, :]) ** 2).sum(-1), x @ x.T

        maker, family = same(lambda r: first(MAKERS, r["device"])), same(lambda r: first(FAMILIES, r["device"]))
        bits, framework = same(lambda r: BITS.get(r["precision"], 8)), same(lambda r: r["framework"])
        device, model = same(lambda r: r["device"]), same(lambda r: r["model"])
        date = numpy.array([float(r["date"]) for r in rows])
        years = numpy.where((date[:, None] > 0) & (date[None, :] > 0), abs(date[:, None] - date[None, :]), 2)
        far, _ = squared(LAYOUT)
        apart, linear = squared(SHARES)
        near, twin, day = numpy.exp(-far / 8), numpy.exp(-far / 0.5), numpy.exp(-years)
        software = family * framework * bits
        self.parts = {
            "kShares": maker * numpy.exp(-apart / (2 * 0.15 ** 2)),
            "kDevicePrecision": device * same(lambda r: r["precision"]), "kModel": model, "kLayout": family * near,
            "kFamilyBits": family * bits,
            "kExpertsSoftware": family * same(lambda r: r["framework"].split(",")[0]) * same(lambda r: r["experts"]),
            "kSoftware": software * day, "kSharesSoftware": software * linear,
            "kWords": software * same(lambda r: r["words"]) * near, "kModelDevice": model * device,
            "kModelLayout": model * device * near * day,
            "kTwins": model * device * software * twin * numpy.exp(-years / 0.5)}
        if memory:
            _, bytes_ = squared(SHARES[:2])  # what stays, what passes
            words = same(lambda r: r["words"])
            self.parts = {
                "kMemory": bytes_, "kMemoryModel": model, "kMemoryFramework": framework * bytes_,
                "kMemoryLayout": framework * near, "kMemoryTwins": framework * model * near,
                "kMemoryWords": framework * model * words * near}
        self.groups = {"rows": numpy.arange(len(rows)),
                       "models": numpy.unique([r["model"] for r in rows], return_inverse=True)[1],
                       "documents": numpy.unique([r["document"] for r in rows], return_inverse=True)[1]}

    def expected(self, v):
        """For each way of holding out, what is expected of each row."""
        covariance = sum(v[name] * part for name, part in self.parts.items())
        noise = self.noise * v[self.noise_name] / self.noise.min()
        inverse = numpy.linalg.inv(covariance + numpy.diag(noise))
        weights = inverse @ self.y
        for by, group in self.groups.items():
            mean = numpy.zeros(len(self.y))
            for g in range(group.max() + 1):
                of = numpy.where(group == g)[0]
                mean[of] = self.y[of] - numpy.linalg.solve(inverse[numpy.ix_(of, of)], weights[of])
            yield by, mean

    def loss(self, v):
        return sum(WEIGHTS[by] * numpy.mean(numpy.minimum(abs(mean - self.y), 0.7) ** 0.7)
                   for by, mean in self.expected(v))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    text = (POINTS / "traits.cpp").read_text()
    rows = Rows(options.memory)
    v = {name: float(re.search(rf"\b{name} = ([0-9.e-]+)", text)[1]) for name in [*rows.parts, rows.noise_name]}
    best = rows.loss(v)
    for step in [math.e * 0.6 ** i for i in range(options.rounds)]:
        for name in v:
            for factor in (step, 1 / step):
                while True:
                    tried = {**v, name: v[name] * factor}
                    loss = rows.loss(tried)
                    if loss > best - 1e-5:
                        break
                    best, v = loss, tried
    print(f"loss {best:.4f}", *(f"{name} = {value:.2g}" for name, value in v.items()), sep="\n")
    for by, mean in rows.expected(v):
        errors = abs(numpy.exp(rows.y - mean) - 1)
        print(f"{by}: median {100 * numpy.median(errors):.1f} %, p90 {100 * numpy.quantile(errors, 0.9):.1f} %")


if __name__ == "__main__":
    main()
