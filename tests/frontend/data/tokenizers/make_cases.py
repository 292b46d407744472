"""Writes small tokenizers and what Hugging Face's `tokenizers` (PyPI) makes of texts with them: cases.json.

Run by hand: python3 make_cases.py, in this folder.
"""
import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The tokenizer splits text into pieces, and each piece becomes ids.",
    "We've 1234 tokens; they're shorter than words, but longer than letters.",
    "Training models on text needs batches of tokens of the same length.",
    "naïve café déjà vu — 東京 と 北京, здравствуй мир!",
] * 4

TEXTS = [
    "",
    " ",
    "We've tokens",
    "WE'VE  tokens,  they'Re 12345 longer?!",
    "  leading and trailing  \n\n\t lines \r\n",
    "naïve CAFÉ déjà\u0301 vu",
    "東京と北京 tokens",
    "emoji 😀 👨\u200d👩\u200d👧 text\u00a0x",
    "control\x00 \x07chars\ufffd \u200bzero",
    "a [MASK] b<s>c</s> <mask> d [CLS]",
    "ſ'ſ x'S y'll z'LL İstanbul ΑΣ",
    "½ ٣ 五 ² 12.5e-3",
    "unaffordable" * 12,
]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_bpe(pre_tokenizer):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def gpt2():
    t = byte_bpe(pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.add_special_tokens(["<s>", "</s>", "<mask>"])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return t


def llama3():
    return byte_bpe(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def bert():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
        vocab_size=150, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False))
    return t


def sentence_bpe():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)], show_progress=False))
    text = json.loads(t.to_str())
    del text["added_tokens"][1:]  # bytes are no special tokens
    return Tokenizer.from_str(json.dumps(text))


cases = []
for name, make in [("gpt2", gpt2), ("llama3", llama3), ("bert", bert), ("unigram", unigram),
                   ("sentence_bpe", sentence_bpe)]:
    tokenizer = make()
    with open(f"{name}.json", "w") as file:
        json.dump(json.loads(tokenizer.to_str()), file, ensure_ascii=True)
        file.write("\n")
    for text in TEXTS:
        cases.append({"tokenizer": name, "text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids,
                      "with_special": tokenizer.encode(text).ids,
                      "pair": tokenizer.encode(text, "second text").ids,
                      "types": tokenizer.encode(text, "second text").type_ids})
with open("cases.json", "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
