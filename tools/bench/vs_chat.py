#!/usr/bin/env python3
"""Compares tokenizing chats with transformers, in one run: rows per second of rendering and tokenizing.

    V/bin/python tools/bench/vs_chat.py TEXT [--onnxtrain build/release/bin/onnxtrain] [--rows N] [--rounds N]

V has transformers, tokenizers and numpy. TEXT is a file of English; its lines become dialogues of one to four turns,
and the vocabulary, byte-level BPE, is made of it. Each template is read by apply_chat_template(tokenize=True) of
transformers, with the assistant's mask where the template has {% generation %}, and by `onnxtrain train --dry-run`,
which always finds the assistant's tokens, by rendering prefixes where the template does not name them. Ours is the
time for all rows minus that for a few, so that the start of the program and the model do not count. Everything runs on
one thread; figures are rows per second of CPU time, the median of alternating rounds.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import tempfile
import time

os.environ['RAYON_NUM_THREADS'] = '1'
os.environ['TOKENIZERS_PARALLELISM'] = 'false'

import tokenizers
import transformers
from tokenizers import models, pre_tokenizers, trainers

HEAD = ("{%- if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "{%- endif %}")
END = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TEMPLATES = {
    'plain': HEAD + "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n"
                    "{% endfor %}" + END,
    'generation': HEAD + "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}"
                         "{% generation %}{{ m['content'] | trim }}<|im_end|>{% endgeneration %}{% else %}"
                         "{{ m['content'] | trim }}<|im_end|>{% endif %}\n{% endfor %}" + END}
FEW = 100


def make_tokenizer(lines, folder):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
    made.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=16384, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token='<|im_end|>',
                                                pad_token='<|endoftext|>')
    fast.save_pretrained(folder)
    return fast


def draw_dialogue(lines, draw):
    messages = [] if draw.random() < 0.5 else [{'role': 'system', 'content': draw.choice(lines)}]
    for _ in range(draw.randint(1, 4)):
        messages.append({'role': 'user', 'content': draw.choice(lines)})
        messages.append({'role': 'assistant', 'content': '\n'.join(draw.choices(lines, k=draw.randint(1, 5)))})
    return {'messages': messages}


def save_model(size, path):
    """Writes a language model of one product."""
    import numpy
    import onnx
    table = numpy.zeros((size, 2), numpy.float32)
    nodes = [onnx.helper.make_node('Gather', ['table', 'input_ids'], ['x']),
             onnx.helper.make_node('MatMul', ['x', 'head'], ['logits'])]
    ids = onnx.helper.make_tensor_value_info('input_ids', onnx.TensorProto.INT64, ['batch', 'length'])
    logits = onnx.helper.make_tensor_value_info('logits', onnx.TensorProto.FLOAT, ['batch', 'length', size])
    weights = [onnx.numpy_helper.from_array(table, 'table'), onnx.numpy_helper.from_array(table.T.copy(), 'head')]
    graph = onnx.helper.make_graph(nodes, 'chat', [ids], [logits], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid('', 17)]), path)


def run_own(binary, folder, data):
    """Returns the CPU seconds of planning a run on the data."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([binary, 'train', '--model', f'{folder}/model.onnx', '--data', data, '--dry-run', '--threads', '1',
                    '--batch-size', '1', '--mixed-precision', 'no', '--packing', 'off', '--max-length', '4096'],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_transformers(tokenizer, rows, mask):
    begin = time.process_time()
    for row in rows:
        if mask:
            tokenizer.apply_chat_template(row['messages'], tokenize=True, return_dict=True,
                                          return_assistant_tokens_mask=True)
        else:
            tokenizer.apply_chat_template(row['messages'], tokenize=True)
    return time.process_time() - begin


def compare(name, tokenizer, rows, args, folder):
    tokenizer.chat_template = TEMPLATES[name]
    tokenizer.save_pretrained(folder)
    ours, theirs = [], []
    for _ in range(args.rounds):
        few, all_rows = (run_own(args.onnxtrain, folder, f'{folder}/{data}.jsonl') for data in ('few', 'all'))
        ours.append((len(rows) - FEW) / max(all_rows - few, 1e-9))
        theirs.append(len(rows) / run_transformers(tokenizer, rows, name == 'generation'))
    own, other = statistics.median(ours), statistics.median(theirs)
    print(f'{name}: onnxtrain {own:,.0f} rows/s, transformers {other:,.0f} rows/s, ratio {own / other:.1f}', flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('text')
    parser.add_argument('--onnxtrain', default='build/release/bin/onnxtrain')
    parser.add_argument('--rows', type=int, default=20000)
    parser.add_argument('--rounds', type=int, default=3)
    args = parser.parse_args()
    text = pathlib.Path(args.text).read_text(encoding='utf8', errors='replace')
    lines = [line for line in text.splitlines() if len(line) > 20]
    draw = random.Random(0)
    rows = [draw_dialogue(lines, draw) for _ in range(args.rows)]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = make_tokenizer(lines, folder)
        save_model(len(tokenizer), f'{folder}/model.onnx')
        for name, part in (('few', rows[:FEW]), ('all', rows)):
            with open(f'{folder}/{name}.jsonl', 'w', encoding='utf8') as file:
                file.writelines(json.dumps(row) + '\n' for row in part)
        for name in TEMPLATES:
            compare(name, tokenizer, rows, args, folder)


if __name__ == '__main__':
    main()
