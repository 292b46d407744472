"""Compares token ids with Hugging Face's `tokenizers` (PyPI) on generated lines of many kinds.

    ninja -C build/release tokenizer_ids
    python3 tests/parity/tokenizers/compare_ids.py build/release/bin/tokenizer_ids TOKENIZER [--lines 10000]
    python3 tests/parity/tokenizers/compare_ids.py build/release/bin/tokenizer_ids TOKENIZER --time ENGLISH_TEXT

TOKENIZER is a tokenizer.json, BERT's vocab.txt, GPT-2's vocab.json (or encoder.json) beside its merges, or a .model of
SentencePiece, which its own library reads. With --time, prints MB/s of both on one thread.
"""
import argparse
import collections
import random
import subprocess
import sys
import tempfile
import time
import types
import unicodedata

import tokenizers

END = "\x1e"
WORDS = ("the of and to in is was that it for on with as his they be at one have this from or had by word but what "
         "some we can out other were all there when up use your how said each she which do their time if will way "
         "Unaffable naturalization 3.14159 HTTPServer snake_case O'Neill's co-operate").split()
CJK = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道日本語テスト漢字かなカタカナ한국어조선말龍𠀀𪜀豈"
ACCENTS = "éèêëàâäôöûüçñøåÅÉÎïßœÆłŁŠžğıİſȘțẞǅŉΆΐΰᾳἄ\u0302\u0303\u0308\u0304\u0334abcdeXYZ"
GERMAN = ("der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er "
          "hat daß Straße größer Übung Äpfel Öl Donaudampfschifffahrtsgesellschaft STRASSE Maß 1.234,56 z.B.").split()
ARABIC = ("في من على إلى أن هذا التي الذي كان عن مع العربية كِتَابٌ مُحَمَّدٌ ﷲ لا إله ١٢٣٫٤ ؟ ، שלום עולם בְּרֵאשִׁית "
          "السَّلَامُ عَلَيْكُمْ ـــ پارسی می‌خواهم ۴۵۶").split()
EMOJI = "😀😁😂🤣🧑‍🚀👨‍👩‍👧‍👦🇩🇪❤️☃️✨🏳️‍🌈👍🏽🦄🫠"
CONTROL = "".join(map(chr, list(range(1, 30)) + [31, 127, 0x80, 0x85, 0x9f, 0xa0, 0xad, 0x1680, 0x2003, 0x200b, 0x200d,
                                                  0x2028, 0x2029, 0x202f, 0x3000, 0xe000, 0xfeff, 0xfffd]))
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»„“”‘’–—…¿¡。、，？！：；「」・€£¥§©°±²³½¼µ·"
SPECIAL = ["[CLS]", "[SEP]", " [MASK] ", "<s>", "</s>", " <mask>", "<|endoftext|>", "<unk>", "[UNK]", "<pad>"]
CODE = ["def f(x):", "    return x+=1;", "if (a[i] != NULL && b->c) {", "}\n\n", "\t\t// TODO: fix",
        "std::vector<int> v{1, 2};", "self.__init__(*args, **kwargs)", "0xDEADBEEF", "x_1", "camelCaseName", '"a\\n"',
        "<div class='b'>", "#include <c.h>", "SELECT * FROM t WHERE id=42;", "λ = lambda y: y**2", "=>", "::", "->",
        "/*", "*/", "        ", "\r\n"]
CONTRACTIONS = ["I'm", "you'LL", "he's", "don't", "'S", "we'Ve", "it'd'", "''ll", "'ſ"]


def pick(alphabet, most):
    return "".join(random.choice(alphabet) for _ in range(random.randrange(1, most)))


def any_character():
    while True:
        c = chr(random.randrange(0x80, 0x3000) if random.random() < 0.7 else random.randrange(0x250, 0x2fa20))
        if unicodedata.category(c) not in ("Cn", "Cs"):
            return c


PARTS = {
    "english": lambda: random.choice(WORDS),
    "german": lambda: random.choice(GERMAN),
    "arabic": lambda: random.choice(ARABIC),
    "numbers": lambda: random.choice(["", "-", "$", "0x", "1e"]) + pick("0123456789.,:", 14) + pick("%٣½²①Ⅷ a", 3),
    "cjk": lambda: pick(CJK, 12),
    "accents": lambda: pick(ACCENTS, 6),
    "emoji": lambda: random.choice([pick(EMOJI, 3), random.choice(WORDS)]),
    "control": lambda: random.choice(WORDS) + pick(CONTROL, 4) + pick("ab ", 3),
    "punctuation": lambda: random.choice([pick(PUNCTUATION, 4), random.choice(CONTRACTIONS), pick("0123456789", 9)]),
    "unicode": lambda: "".join(any_character() for _ in range(random.randrange(1, 8))),
    "special": lambda: random.choice(SPECIAL + WORDS[:40]),
    "spaces": lambda: random.choice(WORDS) + pick(" \n\r\t\u00a0\u3000", 5),
    "long": lambda: pick("abcdefgxyz", 400),
    "code": lambda: random.choice(CODE),
}
PARTS["mixed"] = lambda: PARTS[random.choice(list(PARTS)[:-1])]()


def make_line(kind):
    return random.choice([" ", " ", "", "  "]).join(PARTS[kind]() for _ in range(random.randrange(1, 25)))


class SentencePiece:
    """The calls of a tokenizer that are made here, by the sentencepiece package."""

    def __init__(self, path):
        import sentencepiece
        self.processor = sentencepiece.SentencePieceProcessor(model_file=path)

    def encode(self, line, add_special_tokens):
        return types.SimpleNamespace(ids=self.processor.encode(line))

    def encode_batch(self, lines, add_special_tokens):
        return [self.encode(line, add_special_tokens) for line in lines]


def load(path):
    if path.endswith(".model"):
        return SentencePiece(path)
    if path.endswith(".txt"):
        return tokenizers.BertWordPieceTokenizer(path, lowercase=True)
    if path.endswith(("vocab.json", "encoder.json")):
        merges = path.replace("encoder.json", "vocab.bpe").replace("vocab.json", "merges.txt")
        reference = tokenizers.ByteLevelBPETokenizer(path, merges)
        reference.add_special_tokens(["<|endoftext|>"])
        return reference
    return tokenizers.Tokenizer.from_file(path)


def run(program, path, texts, *flags):
    with tempfile.NamedTemporaryFile("w", newline="", encoding="utf-8") as file:
        file.write(END.join(texts))
        file.flush()
        return subprocess.run([program, path, file.name, *flags], capture_output=True, text=True, check=True).stdout


def compare(program, path, count):
    reference = load(path)
    lines = [(kind, make_line(kind)) for kind in PARTS for _ in range(count)]
    lines = [(kind, line) for kind, line in lines if line]
    ids = [[int(x) for x in line.split()] for line in run(program, path, [line for _, line in lines]).split("\n")]
    expected = reference.encode_batch([line for _, line in lines], add_special_tokens=False)
    different = collections.Counter()
    for (kind, line), got, want in zip(lines, ids, expected):
        if got != want.ids:
            different[kind] += 1
            if sum(different.values()) <= 5:
                print(f"{kind}: {line[:100]!r}\n  {got[:30]}\n  {want.ids[:30]}")
    print(f"{path}: {len(lines)} lines, {sum(different.values())} different {dict(different)}")
    return 1 if different else 0


def measure(program, path, text):
    lines = open(text, encoding="utf-8").read().split("\n")
    print("onnxtrain:", run(program, path, lines, "--time").strip())
    reference = load(path)
    start = time.perf_counter()
    tokens = sum(len(reference.encode(line, add_special_tokens=False).ids) for line in lines)
    seconds = time.perf_counter() - start
    print(f"tokenizers: {tokens} tokens, {sum(len(line.encode()) + 1 for line in lines) / seconds / 1e6:.1f} MB/s")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("tokenizer")
parser.add_argument("--lines", type=int, default=10000, help="of each kind")
parser.add_argument("--time", metavar="TEXT")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
random.seed(args.seed)
if args.time:
    measure(args.program, args.tokenizer, args.time)
else:
    sys.exit(compare(args.program, args.tokenizer, args.lines))
