"""Released models to runs and back, and runs that begin from weights."""
import json
import pathlib
import shutil
import struct
import unittest

from program import Program

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"


def tensors(path):
    """Of a safetensors file: name to (type, shape, bytes)."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    data = raw[8 + size:]
    return {name: (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def write(path, all_tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in sorted(all_tensors.items()):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


BIAS = "e_score_correction_bias"    # F32 in released files


def wide(values):
    return b"".join(b"\0\0" + values[i:i + 2] for i in range(0, len(values), 2))


def bf16(values):
    """F32 bytes, rounded by cutting: what a released file in bf16 could hold."""
    return b"".join(values[i + 2:i + 4] for i in range(0, len(values), 4))


def whole(folder):
    if (folder / "model.safetensors").exists():
        return tensors(folder / "model.safetensors")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found = {}
    for shard in sorted(set(index["weight_map"].values())):
        for name, tensor in tensors(folder / shard).items():
            assert index["weight_map"][name] == shard
            found[name] = tensor
    assert set(found) == set(index["weight_map"])
    assert index["metadata"]["total_size"] == sum(len(t[2]) for t in found.values())
    return found


class Convert(Program):
    def ok(self, *arguments):
        return self.heddle(*map(str, arguments)).stdout

    def fails(self, *arguments, says):
        self.assertIn(says, self.heddle(*map(str, arguments), status=2).stderr)

    def released(self, name):
        """A fixture's model in bf16, as a folder of its own."""
        folder = self.folder / f"released-{name}"
        if not folder.exists():
            shutil.copytree(FIXTURES / name, folder)
            own = tensors(folder / "model.safetensors")
            write(folder / "model.safetensors",
                  {n: (d, s, v) if d != "F32" or BIAS in n else ("BF16", s, bf16(v))
                   for n, (d, s, v) in own.items()})
            (folder / "generation_config.json").write_text('{"temperature": 0.5}')
        return folder

    def test_a_broken_companion_is_refused_before_weights_come_in(self):
        folder = self.folder / "broken"
        shutil.copytree(self.released("qwen3"), folder)
        (folder / "generation_config.json").write_text('{"eos_token_id": [1,')
        self.fails("convert", folder, "--to", self.folder / "run", says="generation_config.json:1:21: not JSON")
        self.assertEqual(list((self.folder / "run").glob("checkpoints/step*")), [])

    def test_a_released_model_goes_in_and_comes_out_bit_for_bit(self):
        for name in ("mtp", "grouped", "qwen3", "qwen3_moe", "gpt_oss"):
            with self.subTest(name):
                folder, run, back = self.released(name), self.folder / f"run-{name}", self.folder / f"back-{name}"
                self.ok("convert", folder, "--to", run)
                told = json.loads(self.ok("convert", run, "--to", back, "--shard-bytes", "20000", "--json"))
                self.assertEqual(told["made"], "released model")
                self.assertGreater(len(list(back.glob("model-*.safetensors"))), 1)
                made = whole(back)
                for copy, of in (("embed_tokens", "model.embed_tokens.weight"), ("shared_head.head", "lm_head.weight")):
                    name = f"model.layers.3.{copy}.weight"    # a prediction module's, as DeepSeek releases them
                    if name in made:
                        self.assertEqual(made.pop(name), made[of])
                self.assertEqual(made, {n: ("F32", s, wide(v)) if BIAS in n and d == "BF16" else (d, s, v)
                                               for n, (d, s, v) in whole(folder).items()})
                self.assertEqual((back / "generation_config.json").read_text(), '{"temperature": 0.5}')
                config = json.loads((back / "config.json").read_text())
                self.assertEqual(config["architectures"], json.loads((folder / "config.json").read_text())["architectures"])
                self.assertEqual(config["torch_dtype"], "bfloat16")

    def test_special_tokens_that_config_alone_says_leave_again(self):
        folder, run, back = (self.folder / name for name in ("ids", "ids-run", "ids-back"))
        shutil.copytree(FIXTURES / "qwen3", folder)
        ids = dict(bos_token_id=3, eos_token_id=[1, 2], pad_token_id=0)
        (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | ids))
        self.ok("convert", folder, "--to", run)
        self.ok("convert", run, "--to", back)
        for name in ("config.json", "generation_config.json"):
            made = json.loads((back / name).read_text())
            self.assertEqual({key: made.get(key) for key in ids}, ids)

    def test_what_a_run_has_trained_leaves_and_comes_back(self):
        run = self.trained()
        out, again = self.folder / "out", self.folder / "again"
        self.ok("convert", run, "--to", out, "--dtype", "f32")
        self.assertTrue((out / "tokenizer.json").exists())
        self.assertEqual(json.loads((out / "generation_config.json").read_text())["eos_token_id"],
                         json.loads((out / "config.json").read_text())["eos_token_id"])
        self.ok("convert", out, "--to", again)
        text = self.ok("generate", again, "--prompt", "the", "--tokens", "8", "--temperature", "0", "--set", "device.dtype=f32",
                       "--set", "train.sequence_length=32")
        self.assertEqual(text, self.ok("generate", run, "--prompt", "the", "--tokens", "8", "--temperature", "0",
                                       "--set", "device.dtype=f32"))
        self.fails("convert", out, "--to", again, says="holds a run already")
        self.fails("convert", run, "--to", out, says="holds a model already")

    def test_the_mean_of_checkpoints_is_a_run(self):
        self.heddle("train", "tiny.toml", "--set", "output=many", "--set", "train.checkpoint_every=2")
        loss = {}
        for name, count in (("one", 1), ("three", 3)):
            made = json.loads(self.heddle("convert", "many", "--average", f"{count}", "--to", name, "--json").stdout)
            self.assertEqual(made["notes"][-1], "the mean of the checkpoints of steps " +
                             ", ".join(f"{step}" for step in range(8 - 2 * count, 7, 2)))
            loss[name] = self.heddle("eval", name, "--json").stdout
        own = self.heddle("eval", "many", "--json").stdout
        texts = [json.loads(out)["texts"] for out in (own, loss["one"], loss["three"])]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])
        self.assertTrue(self.heddle("generate", "three", "--prompt", "the", "--tokens", "4").stdout)
        self.heddle("convert", "three", "--to", "three-released")
        few = self.heddle("convert", "many", "--average", "4", "--to", "four", status=2)
        self.assertIn("3 checkpoints, 4 are to be averaged", few.stderr)

    def test_block_scaled_eights_are_read_as_products(self):
        folder = self.folder / "eights"
        shutil.copytree(FIXTURES / "qwen3", folder)
        own = tensors(folder / "model.safetensors")
        name = next(n for n in own if n.endswith("mlp.gate_proj.weight"))
        rows, columns = own[name][1]
        codes = bytes((i * 37) % 127 for i in range(rows * columns))
        blocks = [-(-rows // 128), -(-columns // 128)]
        scales = [0.5 + i for i in range(blocks[0] * blocks[1])]
        own[name] = ("F8_E4M3", [rows, columns], codes)
        own[name + "_scale_inv"] = ("F32", blocks, struct.pack(f"<{len(scales)}f", *scales))
        write(folder / "model.safetensors", own)
        run, back = self.folder / "eights-run", self.folder / "eights-back"
        self.ok("convert", folder, "--to", run)
        self.ok("convert", run, "--to", back, "--dtype", "f32")

        def value(code):
            exponent, mantissa = (code >> 3) & 15, code & 7
            size = mantissa * 2.0 ** -9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
            return -size if code & 128 else size
        expected = [value(c) * scales[(i // columns // 128) * blocks[1] + i % columns // 128]
                    for i, c in enumerate(codes)]
        self.assertEqual(list(struct.unpack(f"<{len(codes)}f", whole(back)[name][2])), expected)
        del own[name + "_scale_inv"]
        write(folder / "model.safetensors", own)
        self.fails("convert", folder, "--to", self.folder / "eights-none", says="_scale_inv")
        self.assertFalse((self.folder / "eights-none").exists())

    def trained(self):
        run = self.folder / "trained"
        if not run.exists():
            self.ok("train", "tiny.toml", "--set", f"output={run}")
        return run

    def start(self, name, *more):
        run = self.folder / name
        if run.exists():
            shutil.rmtree(run)
        self.ok("train", "tiny.toml", "--set", f"output={run}", "--set", "device.dtype=f32", *more)
        return list(self.losses(run).values())

    def test_experts_in_mxfp4_are_read_as_their_products(self):
        folder = self.folder / "fours"
        shutil.copytree(FIXTURES / "gpt_oss", folder)
        config = json.loads((folder / "config.json").read_text())
        own = tensors(folder / "model.safetensors")
        expected = {n: ("F32", s, wide(v)) for n, (d, s, v) in own.items()}
        numbers = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        for name in [n for n in own if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
            experts, inputs, outputs = own.pop(name)[1]
            codes = bytes((i * 41 + i // 7) % 256 for i in range(experts * outputs * inputs // 2))
            scales = bytes(118 + i % 9 for i in range(experts * outputs * inputs // 32))
            own[name + "_blocks"] = ("U8", [experts, outputs, inputs // 32, 16], codes)
            own[name + "_scales"] = ("U8", [experts, outputs, inputs // 32], scales)

            def value(e, row, column):    # of the matrix that is not transposed
                at = (e * outputs + row) * inputs + column
                four = codes[at // 2] >> 4 * (at % 2) & 15
                return (-1) ** (four >> 3) * numbers[four & 7] * 2.0 ** (scales[at // 32] - 127)
            values = [value(e, row, column) for e in range(experts) for column in range(inputs) for row in range(outputs)]
            expected[name] = ("F32", [experts, inputs, outputs], struct.pack(f"<{len(values)}f", *values))
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
        (folder / "config.json").write_text(json.dumps(config))
        write(folder / "model.safetensors", own)
        run, back = self.folder / "fours-run", self.folder / "fours-back"
        self.ok("convert", folder, "--to", run)
        self.ok("convert", run, "--to", back, "--dtype", "f32")
        self.assertEqual(whole(back), expected)
        del own["model.layers.1.mlp.experts.down_proj_scales"]
        write(folder / "model.safetensors", own)
        self.fails("convert", folder, "--to", self.folder / "fours-none", says="down_proj_scales")
        config["quantization_config"] = {"quant_method": "awq"}
        (folder / "config.json").write_text(json.dumps(config))
        self.fails("convert", folder, "--to", self.folder / "fours-none", says="quantised weights are not read")

    def test_weights_in_few_bits_of_each_form(self):
        """Each matrix of a model in another form: whole numbers in groups, NVFP4 of both kinds, fp8 by rows."""
        folder = self.folder / "few"
        shutil.copytree(FIXTURES / "qwen3_moe", folder)
        own = tensors(folder / "model.safetensors")
        expected = dict(own)    # in F32
        single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
        e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        e4m3 = lambda c: (c & 7) * 2.0 ** -9 if c < 8 else (8 + (c & 7)) * 2.0 ** ((c >> 3) - 10)
        forms = 0
        for at, name in enumerate(n for n in sorted(own) if n.endswith("proj.weight")):
            rows, columns = own[name][1]
            form = at % 4
            if columns % 8:
                continue
            codes = bytes((i * 41 + i // 7 + at) % 256 for i in range(rows * columns))
            fours = [codes[i // 2] >> 4 * (i % 2) & 15 for i in range(rows * columns)]
            del own[name]
            forms |= 1 << form
            if form == 0:                       # groups of eight, the lowest four bits of a word first
                scales = [0.25 + i % 5 for i in range(rows * columns // 8)]
                own[name + "_packed"] = ("I32", [rows, columns // 8], codes[:rows * columns // 2])
                own[name + "_scale"] = ("F32", [rows, columns // 8], struct.pack(f"<{len(scales)}f", *scales))
                own[name + "_shape"] = ("I64", [2], struct.pack("<2q", rows, columns))
                values = [(n - 8) * scales[i // 8] for i, n in enumerate(fours)]
            elif form == 3:                     # a factor a row
                codes = bytes(c % 127 for c in codes)
                own[name] = ("F8_E4M3", [rows, columns], codes)
                own[name + "_scale"] = ("F32", [rows, 1], struct.pack(f"<{rows}f", *[0.5 + i for i in range(rows)]))
                values = [e4m3(c) * (0.5 + i // columns) for i, c in enumerate(codes)]
            else:                               # a factor for eight numbers, one of all factors
                factors = bytes(i * 5 % 120 for i in range(rows * columns // 8))
                whole_factor = single(0.037)
                packed, of_all = ("", "_scale_2") if form == 1 else ("_packed", "_global_scale")
                own[name + packed] = ("U8", [rows, columns // 2], codes[:rows * columns // 2])
                own[name + "_scale"] = ("F8_E4M3", [rows, columns // 8], factors)
                own[name + of_all] = ("F32", [], struct.pack("<f", whole_factor))
                own[name.removesuffix("weight") + "input_scale"] = ("F32", [], struct.pack("<f", 3))
                scale = whole_factor if form == 1 else single(1 / whole_factor)
                values = [single((-1) ** (n >> 3) * e2m1[n & 7] * single(e4m3(factors[i // 8]) * scale))
                          for i, n in enumerate(fours)]
            expected[name] = ("F32", [rows, columns], struct.pack(f"<{len(values)}f", *values))
        self.assertEqual(forms, 15)
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "mixed"}
        (folder / "config.json").write_text(json.dumps(config))
        write(folder / "model.safetensors", own)
        run, back = self.folder / "few-run", self.folder / "few-back"
        self.ok("convert", folder, "--to", run)
        self.ok("convert", run, "--to", back, "--dtype", "f32")
        self.assertEqual(whole(back), expected)

    def test_a_run_begins_from_weights_in_any_form_and_layout(self):
        source = self.trained()
        out = self.folder / "start-out"
        if not out.exists():
            self.ok("convert", source, "--to", out, "--dtype", "f32")
        fresh = self.start("from-seed")
        of_run = self.start("from-run", "--set", f"train.start={source}")
        self.assertNotEqual(fresh, of_run)
        self.assertLess(of_run[0], fresh[0])
        self.assertEqual(of_run, self.start("from-released", "--set", f"train.start={out}"))
        steps = sorted((source / "checkpoints").iterdir())
        self.assertEqual(of_run, self.start("from-step", "--set", f"train.start={steps[-1]}"))
        kept = self.start("from-kept", "--set", f"train.start={source}", "--set", "train.start_moments=kept")
        self.assertEqual(kept[0], of_run[0])
        self.assertNotEqual(kept[2:], of_run[2:])
        laid_out = self.start("from-two", "--set", f"train.start={out}", "--set", "train.exact_sums=true",
                              "--set", "mesh.dp=2", "--ranks", "2")
        self.assertEqual(laid_out, self.start("from-one", "--set", f"train.start={out}", "--set", "train.exact_sums=true"))

    def test_what_cannot_be_begun_from_says_so(self):
        source = self.trained()
        out = self.folder / "refused-out"
        self.ok("convert", source, "--to", out)
        at = ("train", "tiny.toml", "--set", f"output={self.folder}/refused")
        self.fails(*at, "--set", "train.start=nowhere", says="nowhere")
        self.fails(*at, "--set", f"train.start={out}", "--set", "train.start_moments=kept", says="no moments")
        self.fails(*at, "--set", f"train.start={out}", "--set", "model.hidden_size=64", says="shape")
        self.fails(*at, "--set", f"train.start={source}", "--set", "model.hidden_size=64", says="expected")
        longer = self.heddle("train", "tiny.toml", "--set", f"output={self.folder}/longer", "--set",
                             f"train.start={source}", "--set", "model.rope_theta=500000")
        self.assertIn("rope_theta is 10000, 500000 is expected", longer.stderr)


if __name__ == "__main__":
    unittest.main()
