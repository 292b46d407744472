#!/usr/bin/env python3
"""Compares preference training with TRL's DPOTrainer: the same tiny Llama, pairs, order and optimizer.

    tools/bench/vs_trl_dpo.py
    tools/bench/vs_trl_dpo.py --loss ipo,dpo --steps 20 --onnxtrain build/release/bin/onnxtrain

The model has random weights and is exported by PyTorch into a folder with its tokenizer and chat template. Printed are
the largest relative difference of the losses of all steps, that of the gradients of one step, taken from an update by
plain gradient descent, and PyTorch's own spread: the same losses in float32 and in float64.

The Python that runs this needs trl, torch, transformers, datasets, tokenizers, onnx and onnxscript.
"""
import argparse
import copy
import json
import os
import random
import shutil
import subprocess
import tempfile

import datasets
import onnx
import onnx.numpy_helper
import tokenizers
import torch
import transformers
import trl

TEMPLATE = ('{% for m in messages %}<{{ m.role }}> {{ m.content }} </s> {% endfor %}'
            '{% if add_generation_prompt %}<assistant> {% endif %}')
SPECIAL = ['<unk>', '</s>', '<pad>', '<user>', '<assistant>']
WORDS = [f'w{i}' for i in range(60)]
RATE = 0.05
LOSSES = {'dpo': ('dpo:beta=0.1', {'loss_type': ['sigmoid'], 'beta': 0.1}),
          'ipo': ('ipo:beta=0.1', {'loss_type': ['ipo'], 'beta': 0.1})}


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


class InOrder(trl.DPOTrainer):
    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def make_tokenizer():
    vocab = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token='<unk>'))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token='<unk>', eos_token='</s>',
                                                pad_token='<pad>', additional_special_tokens=SPECIAL[3:])
    made.chat_template = TEMPLATE
    return made


def make_model():
    config = transformers.LlamaConfig(vocab_size=len(SPECIAL + WORDS), hidden_size=32, intermediate_size=64,
                                      num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      max_position_embeddings=64, pad_token_id=2, eos_token_id=1, bos_token_id=None,
                                      initializer_range=0.2, attn_implementation='eager')
    return transformers.LlamaForCausalLM(config).eval()


def export(model, tokenizer, folder):
    os.makedirs(folder)
    tokenizer.save_pretrained(folder)
    model.config.save_pretrained(folder)
    ids = torch.randint(5, 60, (3, 12))
    axes = {0: torch.export.Dim('batch'), 1: torch.export.Dim('length', max=64)}
    torch.onnx.export(Logits(model), (ids, torch.ones_like(ids)), f'{folder}/model.onnx', dynamo=True,
                      input_names=['input_ids', 'attention_mask'], output_names=['logits'],
                      dynamic_shapes=(axes, axes), optimize=False)


def draw_pairs(count):
    def text(low, high):
        return ' '.join(random.choice(WORDS) for _ in range(random.randint(low, high)))

    def turn(role, content):
        return [{'role': role, 'content': content}]
    return [{'prompt': turn('user', text(2, 6)), 'chosen': turn('assistant', text(2, 9)),
             'rejected': turn('assistant', text(2, 9))} for _ in range(count)]


def train_trl(model, tokenizer, pairs, steps, options, double, folder):
    trained = copy.deepcopy(model).double() if double else copy.deepcopy(model)
    config = trl.DPOConfig(output_dir=folder, per_device_train_batch_size=4, max_steps=steps, learning_rate=RATE,
                           lr_scheduler_type='constant', optim='sgd', max_grad_norm=0, logging_steps=1,
                           save_strategy='no', report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False,
                           precompute_ref_log_probs=False, disable_tqdm=True, **options)
    reference = copy.deepcopy(trained)
    trainer = InOrder(trained, ref_model=reference, args=config, train_dataset=datasets.Dataset.from_list(pairs),
                      processing_class=tokenizer)
    losses = []
    compute = trainer.compute_loss

    def record(*args, **kwargs):
        loss = compute(*args, **kwargs)
        losses.append(float(loss.detach()))
        return loss
    trainer.compute_loss = record
    trainer.train()
    return losses, {name: value.detach() for name, value in trained.named_parameters()}


def train_own(binary, folder, data, loss, steps, out):
    subprocess.run([binary, 'train', '--model', folder, '--data', data, '--loss', loss, '--batch-size', '4',
                    '--max-steps', str(steps), '--optimizer', 'sgd', '--lr', str(RATE),
                    '--lr-scheduler', 'constant', '--max-grad-norm', '0',
                    '--no-shuffle', '--log-every', '1', '--mixed-precision', 'no', '--out', out,
                    '--quiet'], check=True)
    with open(f'{out}/metrics.jsonl', encoding='utf8') as file:
        events = [json.loads(line) for line in file]
    shutil.copytree(out, out + '.copy')  # onnx refuses hard links
    trained = onnx.load(out + '.copy/model.onnx')
    return [event['loss'] for event in events if 'loss' in event and 'lr' in event], {
        tensor.name.removeprefix('model.'): torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
        for tensor in trained.graph.initializer}


def gap(ours, theirs):
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(ours, theirs))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--loss', default=','.join(LOSSES))
    parser.add_argument('--steps', type=int, default=20)
    parser.add_argument('--onnxtrain', default='build/release/bin/onnxtrain')
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    tokenizer, model, pairs = make_tokenizer(), make_model(), draw_pairs(4 * args.steps)
    initial = {name: value.detach().clone() for name, value in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        export(model, tokenizer, f'{folder}/model')
        with open(f'{folder}/pairs.jsonl', 'w', encoding='utf8') as file:
            file.writelines(json.dumps(pair) + '\n' for pair in pairs)
        for name in args.loss.split(','):
            text, options = LOSSES[name]
            run = [folder + '/model', folder + '/pairs.jsonl', text]
            single, stepped = train_trl(model, tokenizer, pairs, 1, options, False, folder + '/trl')
            own, own_stepped = train_own(args.onnxtrain, *run, 1, f'{folder}/{name}1')
            gradients = 0.0
            for weight, before in initial.items():
                if weight not in own_stepped:
                    continue
                expected, got = before - stepped[weight], before - own_stepped[weight].reshape(before.shape)
                gradients = max(gradients, float((expected - got).abs().max() / expected.abs().max().clamp(min=1e-12)))
            compared = sum(weight in own_stepped for weight in initial)
            theirs, _ = train_trl(model, tokenizer, pairs, args.steps, options, False, folder + '/trl')
            exact, _ = train_trl(model, tokenizer, pairs, args.steps, options, True, folder + '/trl')
            ours, _ = train_own(args.onnxtrain, *run, args.steps, f'{folder}/{name}')
            print(f'{name}: one step: loss {gap(own, single):.1e}, gradients of {compared} of {len(initial)} weights '
                  f'{gradients:.1e}; {args.steps} steps: loss {gap(ours, exact):.1e} from float64, '
                  f'PyTorch {gap(theirs, exact):.1e}', flush=True)


if __name__ == '__main__':
    main()
