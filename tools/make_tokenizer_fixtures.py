#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizers with Hugging Face's `tokenizers` (0.23.3 made the committed ones).

Five small byte-level BPE files in the styles of published models, one text of many scripts, and for each file the ids
that the library gives for the text. The text keeps to characters of Unicode 14, on which Oniguruma (theirs) and
PCRE2 10.42 (ours) agree; U+180E, a space to PCRE2 only, is left out.
"""
import json
import pathlib
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/tokenizers"
SENTENCES = """A heddle lifts some of the threads so that the shuttle passes without stopping.
It's the weaver who'll say when they've done; I'd say we're nearly there, and that's that.
In 1804 about 24,650 cards were punched: 7 looms, 3.14159 yards an hour, 100000 knots.
    if (rank == 0) { return loss / 2.0; }  // the first of them
\tTabs,  double  spaces,   trailing ones   
<|endoftext|>Ends of text, <|end of some, and  the rest of the story...
Déjà vu, naïve façade, Ærøskøbing, Straße; Ελληνικά, Русский язык, 中文分词测试, ひらがなとカタカナ, 한국어, עברית, العربية, हिन्दी.
<｜begin▁of▁sentence｜>The loom is loud.<｜end▁of▁sentence｜>
"""
WORDS = "the of and a loom thread weaver shuttle cloth pattern lifts passes under over warp weft beam".split()
BLOCKS = [(0x20, 0x7F)] * 4 + [(0xA0, 0x250), (0x370, 0x530), (0x5D0, 0x700), (0x900, 0xA00), (0x2000, 0x2070),
                               (0x3000, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F700), (1, 0x20),
                               (0x10000, 0x1FFFF), (0x600, 0x2FA20)]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]


def make_text():
    draw = random.Random(7)
    parts = [SENTENCES]
    for _ in range(60):
        parts.append(" ".join(draw.choice(WORDS) for _ in range(draw.randint(3, 12))).capitalize() + draw.choice(".?!,"))
        parts.append(draw.choice([" ", "  ", "\n", "\r\n\r\n", " \n"]))
    for _ in range(700):
        first, last = draw.choice(BLOCKS)
        for _ in range(draw.randint(1, 4)):
            code = draw.randrange(first, last)
            if code == 0x180E or unicodedata.category(chr(code)) in ("Cn", "Cs"):
                continue
            parts.append(chr(code))
        if draw.random() < 0.2:
            parts.append(draw.choice([" ", "  ", "\n", "\r\n", "\t", "123456", "'ll", "'S", "<|endoftext|>", "  the"]))
    return "".join(parts)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated", False)


def byte_level(regex=False, space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=regex)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = make_text()
    (FOLDER / "text.txt").write_bytes(text.encode())
    styles = {
        "gpt2": byte_level(regex=True),
        "gpt2_space": byte_level(regex=True, space=True),
        "llama3": pre_tokenizers.Sequence([split(LLAMA3), byte_level()]),
        "deepseek": pre_tokenizers.Sequence([split(p) for p in DEEPSEEK] + [byte_level()]),
        "digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                           pre_tokenizers.Split("of", "isolated", False), byte_level(regex=True)]),
    }
    ids = {}
    for name, pre_tokenizer in styles.items():
        tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.ByteLevel()
        special = (["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"] if name == "deepseek" else ["<|endoftext|>"])
        tokenizer.train_from_iterator([text], trainers.BpeTrainer(
            vocab_size=420, special_tokens=special, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        tokenizer.add_tokens([AddedToken("  the", normalized=True), AddedToken("<|end", normalized=False)])
        stored = json.loads(tokenizer.to_str())
        if name.startswith("gpt2"):  # the older way of writing merges
            stored["model"]["merges"] = [" ".join(pair) for pair in stored["model"]["merges"]]
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(stored, ensure_ascii=False, separators=(",", ":")))
        tokenizer = Tokenizer.from_file(str(path))
        ids[name] = tokenizer.encode(text, add_special_tokens=False).ids
    # Heddle's own file, which the test TokenizerJson.WritesWhatTheLibraryLoads makes from the text.
    own = FOLDER / "heddle.json"
    if own.exists():
        ids["heddle"] = Tokenizer.from_file(str(own)).encode(text, add_special_tokens=False).ids
    (FOLDER / "ids.json").write_text(json.dumps(ids, separators=(",", ":")))


if __name__ == "__main__":
    main()
