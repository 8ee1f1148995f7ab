#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizers with Hugging Face's `tokenizers`, `sentencepiece` and `tiktoken`
(0.23.3, 0.2.3 and 0.14.0 made the committed ones).

Small tokenizers in the forms of published ones: the same normalizers, patterns, decoders, added tokens and
post-processors, on vocabularies trained here. Two texts: one of many scripts, and hard.bin with what breaks tokenizers
(mixed scripts, code, emoji, odd white space, names of special tokens, decomposed letters, bytes that are no UTF-8). For
each tokenizer the ids that its own library gives. Both texts keep to characters of Unicode 14, on which Oniguruma and
PCRE2 10.42 agree; U+180E, a space to PCRE2 only, is left out.
"""
import base64
import json
import pathlib
import random
import tempfile
import unicodedata

import sentencepiece
import tiktoken
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

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
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}HAN]*[\p{Ll}\p{Lm}\p{Lo}\p{M}HAN]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}HAN]+[\p{Ll}\p{Lm}\p{Lo}\p{M}HAN]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
O200K = CASED.replace("HAN", "") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KIMI = (r"[\p{Han}]+|" + CASED.replace("HAN", r"&&[^\p{Han}]")
        + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
# DeepSeek-V2's pre-tokenizer: a Split each of line ends, letters, punctuation and CJK, then digits one by one.
DEEPSEEK_V2 = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
HARD = """ A line that begins with a space, mixed 中文与English混排，数字12345和3.14，全角１２３　空格。
def f(x):\r\n\treturn {'k': [x**2, x//3]}  # ¹²³ ½ ⅷ\r\n\r\n\r\n        deep();   \t \n
👩‍👩‍👧‍👦 family, flags 🇩🇪🇨🇳, skin 👍🏽, keycap 1️⃣, heart ❤️ ‼️ 🤷🏾‍♂️.
Cafe\u0301 vs Café, A\u030a Å Å, ﬁ ﬂ ㎏ ｶﾞ, \u1112\u1161\u11ab\u1100\u1173\u11af 한글, q\u0323\u0307 q\u0307\u0323, \u0958 \u09c7\u09be.
odd white space:\u00a0nbsp\u2003em\u2009thin\u200bzero\u3000wide\u2028line\u2029para\u0085nel\ufeffbom\tend\x0bvt\x0cff
▁literal▁mark ▁▁two  <0x41><0x0A> <unk> <s>hello</s> </s><|endoftext|><|im_start|>user  <|im_end|> [BOS]x[EOS]  <pad> 
DON'T Don't don’t I'LL we'Re 'tis 's 'S ''s ſ'ſ K's, XMLHttpRequest camelCase snake_case SCREAMING_CASE iPhone15Pro
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!!!!!!!!???........----____====
http://example.org/a/b?c=d&e=%20f#g 192.168.0.1 2024-01-31T23:59:59Z 1,234,567.89 0x7fff 1e-9 ٠١٢٣ १२३ 一二三
العربية مع تشكيل مُحَمَّد עִבְרִית हिन्दी क्षत्रिय ไทย ខ្មែរ Ελληνικά ΑΣ Ăn Việt Tiếng ǅ ĳ ŉ ß ẞ İı \U0001d400\U0001d7d8 𠀀𠮷 \U000e0041
\x00nul \x7fdel \x1besc  \u200d\u200d joiners \u0300leading mark
""".encode() + (b"broken: \xff\xfe \xc3 \xe2\x82 \xe2\x82z \xf0\x9f\x98 \xed\xa0\x80 \xc0\x80 \xf4\x90\x80\x80 \x80\x80 ok\xe2"
                b"\xff\n" + "最后一行 the last line  ".encode() + b"\xf0\x9f")

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


def styled(name, pre_tokenizer, text):
    """Byte-level BPE; its vocabulary is trained by the library itself."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=name in ("llama3", "gpt_oss")))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    special = {"deepseek": ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
               "qwen": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
               "glm": ["<|endoftext|>", "[MASK]", "[gMASK]", "<sop>", "<|user|>"],
               "gpt_oss": ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|channel|>"]}.get(name, ["<|endoftext|>"])
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=420, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens([AddedToken("  the", normalized=True), AddedToken("<|end", normalized=False)])
    if name == "qwen":
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.add_tokens([AddedToken("Cafe\u0301", normalized=True)])  # found in its composed form
    if name == "llama3":
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|endoftext|>:0 $A:0", special_tokens=[("<|endoftext|>", 0)])])
    if name == "glm":
        tokenizer.add_special_tokens([AddedToken("[BOS]", lstrip=True), AddedToken("[EOS]", rstrip=True),
                                      AddedToken("</s>", lstrip=True, rstrip=True)])
    return tokenizer


def of_characters(name, text):
    """LLaMA 2's and Mixtral's form: characters, spaces marked, bytes for the rest."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    bytes_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    special = ["<unk>", "<s>", "</s>"] + bytes_tokens
    if name == "llama2":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if name == "mistral":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", False)
    if name == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous", False)
    # The library learns within pieces only; words with their marks are what SentencePiece gives it.
    learner = Tokenizer(models.BPE(unk_token="<unk>"))
    learner.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always", True)
    learner.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=560, special_tokens=special, show_progress=False, limit_alphabet=110))
    stored = json.loads(learner.to_str())["model"]
    model = models.BPE(vocab=stored["vocab"], merges=[tuple(pair) for pair in stored["merges"]], unk_token="<unk>",
                       byte_fallback=name != "unknown", fuse_unk=True)
    tokenizer.model = model
    if name == "unknown":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Metaspace("▁", "never", True), pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex(r"[,.]"), "contiguous", True),
            pre_tokenizers.Split(Regex(r"[!?]"), "merged_with_next", False)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    return tokenizer


def unigram(text):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always", True)
    tokenizer.decoder = decoders.Metaspace("▁", "always", True)
    # Few characters, so that others are unknown.
    tokenizer.train_from_iterator((SENTENCES + " ".join(WORDS)).split("\n"), trainers.UnigramTrainer(
        vocab_size=260, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    return tokenizer


def sentencepieces(text):
    """name -> the bytes of a .model"""
    rules = {"①": "(1)", "ﬁ": "fi", "\u3000": " ", "\u00a0": " ", "\u212b": "\u00c5", "\u00ad": "", "\t": " "}
    with tempfile.TemporaryDirectory() as folder:
        corpus, tsv = pathlib.Path(folder) / "text", pathlib.Path(folder) / "rules.tsv"
        corpus.write_text(SENTENCES * 3 + text[len(SENTENCES):len(SENTENCES) + 2500].replace("\r", ""))
        tsv.write_text("".join(" ".join(f"{ord(c):X}" for c in key) + "\t" + " ".join(f"{ord(c):X}" for c in value) + "\n"
                               for key, value in rules.items()))
        common = {"input": str(corpus), "character_coverage": 0.98, "num_threads": 1, "hard_vocab_limit": False}
        kinds = {
            "llama2_sp": dict(model_type="bpe", vocab_size=620, byte_fallback=True, normalization_rule_name="identity",
                              remove_extra_whitespaces=False, split_digits=True),
            "gemma_sp": dict(model_type="bpe", vocab_size=640, byte_fallback=True, normalization_rule_name="identity",
                             add_dummy_prefix=False, remove_extra_whitespaces=False,
                             user_defined_symbols=["▁▁", "▁▁▁▁", "the", "👍🏽", "<pad>"]),
            "unigram_sp": dict(model_type="unigram", vocab_size=360, normalization_rule_tsv=str(tsv),
                               user_defined_symbols=["loom", "<pad>"]),
            "unigram_bytes_sp": dict(model_type="unigram", vocab_size=620, byte_fallback=True,
                                     normalization_rule_name="identity", treat_whitespace_as_suffix=True),
        }
        made = {}
        for name, options in kinds.items():
            sentencepiece.SentencePieceTrainer.train(model_prefix=f"{folder}/{name}", **common, **options)
            made[name] = (pathlib.Path(folder) / f"{name}.model").read_bytes()
        return made


def kimi(source):
    """A tiktoken file with the configuration that Kimi-K2 has; the ranks are those of a byte-level tokenizer."""
    alphabet = {c: b for b, c in enumerate(sorted_alphabet())}
    vocabulary = json.loads(source.to_str())["model"]["vocab"]
    ranks, config = {}, {}
    for token in sorted(vocabulary, key=vocabulary.get):
        if all(c in alphabet for c in token) and token != "<|endoftext|>":
            ranks[bytes(alphabet[c] for c in token)] = len(ranks)
    special = {"[BOS]": len(ranks), "[EOS]": len(ranks) + 1, "<|im_end|>": len(ranks) + 2}
    config = {"added_tokens_decoder": {str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                                                "single_word": False, "special": True} for t, i in special.items()},
              "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}}
    lines = "".join(f"{base64.b64encode(t).decode()} {rank}\n" for t, rank in ranks.items())
    encoding = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)
    return lines, config, encoding


def sorted_alphabet():
    """GPT-2's character of each byte, in the order of the bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(hidden)) for b in range(256)]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = make_text()
    (FOLDER / "text.txt").write_bytes(text.encode())
    (FOLDER / "hard.bin").write_bytes(HARD)
    texts = {"text": text, "hard": HARD.decode(errors="replace")}
    styles = {
        "gpt2": byte_level(regex=True),
        "gpt2_space": byte_level(regex=True, space=True),
        "llama3": pre_tokenizers.Sequence([split(LLAMA3), byte_level()]),
        "deepseek": pre_tokenizers.Sequence([split(p) for p in DEEPSEEK] + [byte_level()]),
        "deepseek_v2": pre_tokenizers.Sequence([split(p) for p in DEEPSEEK_V2]
                                               + [pre_tokenizers.Digits(individual_digits=True), byte_level()]),
        "digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                           pre_tokenizers.Split("of", "isolated", False), byte_level(regex=True)]),
        "qwen": pre_tokenizers.Sequence([split(QWEN), byte_level()]),
        "glm": pre_tokenizers.Sequence([split(LLAMA3), byte_level()]),
        "gpt_oss": pre_tokenizers.Sequence([split(O200K), byte_level()]),
        # Numbers by threes from the right, by a pattern that matches nothing.
        "threes": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"(?=(\d{3})+(?!\d))"), "isolated", False),
                                           pre_tokenizers.Split(Regex(r"\s"), "removed", False), byte_level()]),
    }
    ids = {}
    made = {name: styled(name, pre_tokenizer, text) for name, pre_tokenizer in styles.items()}
    made |= {name: of_characters(name, text) for name in ("llama2", "mistral", "gemma", "unknown")}
    made["unigram"] = unigram(text)
    for name, tokenizer in made.items():
        stored = json.loads(tokenizer.to_str())
        if name.startswith("gpt2"):  # the older way of writing merges
            stored["model"]["merges"] = [" ".join(pair) for pair in stored["model"]["merges"]]
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(stored, ensure_ascii=False, separators=(",", ":")))
        tokenizer = Tokenizer.from_file(str(path))
        ids[path.name] = {kind: tokenizer.encode(t, add_special_tokens=False).ids for kind, t in texts.items()}
        ids[path.name]["begins"] = tokenizer.encode("the").ids  # with what the post-processor adds
    # Heddle's own file, which the test TokenizerJson.WritesWhatTheLibraryLoads makes from the text.
    own = FOLDER / "heddle.json"
    if own.exists():
        tokenizer = Tokenizer.from_file(str(own))
        ids[own.name] = {kind: tokenizer.encode(t, add_special_tokens=False).ids for kind, t in texts.items()}
    for name, model in sentencepieces(text).items():
        (FOLDER / f"{name}.model").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids[f"{name}.model"] = {"text": processor.encode(text.encode()), "hard": processor.encode(HARD)}
    lines, config, encoding = kimi(made["gpt_oss"])
    (FOLDER / "kimi").mkdir(exist_ok=True)
    (FOLDER / "kimi/tiktoken.model").write_text(lines)
    (FOLDER / "kimi/tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    ids["kimi/tiktoken.model"] = {kind: encoding.encode(t, allowed_special="all") for kind, t in texts.items()}
    (FOLDER / "ids.json").write_text(json.dumps(ids, separators=(",", ":")))


if __name__ == "__main__":
    main()
