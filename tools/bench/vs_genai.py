"""Measures tokens per second of `onnxtrain generate` beside onnxruntime-genai on the same file.

    VENV/bin/python tools/bench/vs_genai.py build/release FOLDER …
    VENV/bin/python tools/bench/vs_genai.py build/release --random small,medium --precision fp32,int4

FOLDER is a model with a genai_config.json. `--random` makes models of random weights with the builder of
onnxruntime-genai, which needs PyTorch and transformers. Both programs answer the same prompt greedily in alternating
rounds, each in a process of its own, and the medians of the rounds are compared. Prompts and answers are timed apart:
an answer's time is that from its first token to its last. Needs onnxruntime-genai (PyPI).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

TEXT = "The quick brown fox jumps over the lazy dog. "
RANDOM = {
    "tiny": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, vocab_size=512),
    "small": dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8,
                  num_key_value_heads=4, vocab_size=8192),
    "medium": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=12, num_attention_heads=14,
                   num_key_value_heads=2, vocab_size=32000),
}


def make_tokenizer(folder, vocab_size):
    """Writes a byte-level tokenizer, trained on a text that every Debian system has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [path.read_text() for path in sorted(pathlib.Path("/usr/share/common-licenses").glob("*GPL*"))]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size - 12, special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder)


def make_random(name, precision, folder):
    """Makes a Llama of random weights in the layout of onnxruntime-genai and returns its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    source, target = folder / f"{name}-hf", folder / f"{name}-{precision}"
    config = LlamaConfig(**RANDOM[name], max_position_embeddings=2048, eos_token_id=0, bos_token_id=None,
                         pad_token_id=0, initializer_range=0.1)
    LlamaForCausalLM(config).eval().save_pretrained(source)
    make_tokenizer(source, config.vocab_size)
    subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", target, "-p",
                    precision, "-e", "cpu"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return target


def with_threads(folder, threads, scratch):
    """Returns a copy of the model whose settings name the number of threads."""
    copy = scratch / "threads" / folder.name
    copy.mkdir(parents=True)
    for file in folder.iterdir():
        if file.is_file():
            shutil.copy(file, copy)  # external data may be no link
    settings = json.loads((folder / "genai_config.json").read_text())
    settings["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    (copy / "genai_config.json").write_text(json.dumps(settings))
    return copy


GENAI = """
import json, sys, time
import onnxruntime_genai as og
folder, prompt, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = og.Model(folder)
tokenizer = og.Tokenizer(model)
ids = tokenizer.encode(prompt)
params = og.GeneratorParams(model)
params.set_search_options(do_sample=False, max_length=len(ids) + count)
generator = og.Generator(model, params)
start = time.perf_counter()
generator.append_tokens(ids)
generator.generate_next_token()
first, new = time.perf_counter(), [generator.get_next_tokens()[0]]
while not generator.is_done():
    generator.generate_next_token()
    new.append(generator.get_next_tokens()[0])
end = time.perf_counter()
print(json.dumps(dict(read=len(ids) / (first - start), tokens=len(new),
                      written=(len(new) - 1) / max(end - first, 1e-9))))
"""


def run_genai(folder, prompt, args):
    output = subprocess.run([sys.executable, "-c", GENAI, folder, prompt, str(args.new_tokens)], check=True,
                            capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def run_onnxtrain(folder, prompt, args):
    command = [args.build / "bin" / "onnxtrain", "generate", "--model", folder, "--prompt", prompt, "--chat-template",
               "none", "--max-new-tokens", args.new_tokens, "--threads", args.threads]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(done.stderr)
    number = r"([\d.]+(?:e[+-]?\d+)?)"
    found = re.search(rf"(\d+) tokens read, {number} a second; (\d+) written, {number} a second", done.stderr)
    return dict(read=float(found[2]), tokens=int(found[3]), written=float(found[4]))


def measure(folder, args, scratch):
    folder = with_threads(folder, args.threads, scratch)
    prompt = TEXT * args.sentences
    rounds = {"onnxtrain": [], "genai": []}
    for _ in range(args.rounds):
        rounds["onnxtrain"].append(run_onnxtrain(folder, prompt, args))
        rounds["genai"].append(run_genai(folder, prompt, args))
    median = {name: {key: statistics.median(r[key] for r in runs) for key in ("read", "tokens", "written")}
              for name, runs in rounds.items()}
    ours, theirs = median["onnxtrain"], median["genai"]
    print(f"{folder.name:24} answer {ours['written']:9.1f} {theirs['written']:9.1f} tokens/s, ratio "
          f"{ours['written'] / theirs['written']:5.2f}; prompt {ours['read']:9.1f} {theirs['read']:9.1f}, ratio "
          f"{ours['read'] / theirs['read']:5.2f}; {ours['tokens']:.0f} and {theirs['tokens']:.0f} tokens", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--random", default="", help=f"models to make: {','.join(RANDOM)}")
    parser.add_argument("--precision", default="fp32", help="of these: fp32, int4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sentences", type=int, default=6, help="of the prompt")
    parser.add_argument("--new-tokens", type=int, default=128)
    args = parser.parse_args()
    print(f"{args.threads} threads, load {os.getloadavg()[0]:.1f}, {args.rounds} rounds: onnxtrain, genai, ratio")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        models = list(args.models)
        for name in filter(None, args.random.split(",")):
            models += [make_random(name, precision, scratch) for precision in args.precision.split(",")]
        for folder in models:
            measure(folder, args, scratch)


if __name__ == "__main__":
    main()
