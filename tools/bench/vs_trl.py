#!/usr/bin/env python3
"""Compares training on chats and preferences with TRL's trainers: the same tiny Llama, data, order and optimizer.

    tools/bench/vs_trl.py
    tools/bench/vs_trl.py --case ipo,sft-packed --steps 20 --onnxtrain build/release/bin/onnxtrain

sft trains on the assistant's turns of chats; sft-packed does so with several chats a row, where TRL has one a row;
dpo, ipo, simpo and orpo train on pairs of answers; -lora: an adapter that PEFT has initialized. The cross-entropy of
orpo is that of the chosen answer per pair, as in its paper; TRL's, which counts the prompt as well and all pairs at
once, is replaced. The model has random weights and is exported by PyTorch into a folder with its tokenizer and chat
template. Printed are the largest relative difference of the losses of all steps, that of the gradients of one step,
taken from an update by plain gradient descent, and PyTorch's own spread: the same losses in float32 and in float64.

The Python that runs this needs trl, peft, torch, transformers, datasets, tokenizers, safetensors, onnx and onnxscript.
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
import peft
import safetensors.torch
import tokenizers
import torch
import transformers
import trl
import trl.experimental.cpo
import trl.experimental.orpo

TEMPLATE = ('{% for m in messages %}<{{ m.role }}> {% if m.role == "assistant" %}{% generation %}{{ m.content }} </s> '
            '{% endgeneration %}{% else %}{{ m.content }} </s> {% endif %}{% endfor %}'
            '{% if add_generation_prompt %}<assistant> {% endif %}')
SPECIAL = ['<unk>', '</s>', '<pad>', '<user>', '<assistant>']
WORDS = [f'w{i}' for i in range(60)]
RATE = 0.05
BATCH = 4


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


class InOrder:
    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)


class DpoInOrder(InOrder, trl.DPOTrainer):
    pass


class SftInOrder(InOrder, trl.SFTTrainer):
    pass


class CpoInOrder(InOrder, trl.experimental.cpo.CPOTrainer):
    pass


class OrpoInOrder(InOrder, trl.experimental.orpo.ORPOTrainer):
    def concatenated_forward(self, model, batch):
        forward = super().concatenated_forward(model, batch)
        return (*forward[:4], -forward[0].mean(), *forward[5:])


class Case:
    """A kind of training: TRL's trainer and its settings, our flags, and the data of both."""

    def __init__(self, trainer, config, flags, options, lora=False, whole=False):
        self.trainer, self.config, self.flags, self.options, self.lora = trainer, config, flags, options, lora
        self.pairs = trainer is not SftInOrder
        self.whole = whole  # every update takes all samples, however they lie in rows

    def with_lora(self):
        return Case(self.trainer, self.config, self.flags, self.options, lora=True)


ANSWERS = {'assistant_only_loss': True, 'max_length': 64}
CASES = {
    'sft': Case(SftInOrder, trl.SFTConfig, ['--packing', 'off'], ANSWERS),
    'sft-packed': Case(SftInOrder, trl.SFTConfig, ['--packing', 'on'], ANSWERS, whole=True),
    'dpo': Case(DpoInOrder, trl.DPOConfig, ['--loss', 'dpo:beta=0.1'], {'loss_type': ['sigmoid'], 'beta': 0.1}),
    'ipo': Case(DpoInOrder, trl.DPOConfig, ['--loss', 'ipo:beta=0.1'], {'loss_type': ['ipo'], 'beta': 0.1}),
    'simpo': Case(CpoInOrder, trl.experimental.cpo.CPOConfig, ['--loss', 'simpo:beta=2,gamma=0.5'],
                  {'loss_type': 'simpo', 'cpo_alpha': 0.0, 'beta': 2.0, 'simpo_gamma': 0.5}),
    'orpo': Case(OrpoInOrder, trl.experimental.orpo.ORPOConfig, ['--loss', 'orpo:beta=0.1'], {'beta': 0.1})}
CASES |= {f'{name}-lora': case.with_lora() for name, case in CASES.items() if not case.whole}


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


def draw_text(low, high):
    return ' '.join(random.choice(WORDS) for _ in range(random.randint(low, high)))


def turn(role, low, high):
    return {'role': role, 'content': draw_text(low, high)}


def draw_pairs(count):
    return [{'prompt': [turn('user', 2, 6)], 'chosen': [turn('assistant', 2, 9)],
             'rejected': [turn('assistant', 2, 9)]} for _ in range(count)]


def draw_chats(count):
    return [{'messages': [turn(role, 1, 5) for _ in range(random.randint(1, 3)) for role in ('user', 'assistant')]}
            for _ in range(count)]


def train_trl(model, tokenizer, rows, steps, case, double, folder):
    trained = copy.deepcopy(model).double() if double else copy.deepcopy(model)
    config = case.config(
        output_dir=folder, per_device_train_batch_size=len(rows) if case.whole else BATCH, max_steps=steps,
        learning_rate=RATE, lr_scheduler_type='constant', optim='sgd', max_grad_norm=0, logging_steps=1,
        save_strategy='no', report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False,
        disable_tqdm=True, **case.options)
    given = {'args': config, 'train_dataset': datasets.Dataset.from_list(rows), 'processing_class': tokenizer}
    if case.trainer is DpoInOrder and not case.lora:
        given['ref_model'] = copy.deepcopy(trained)
    trainer = case.trainer(trained, **given)
    losses = []
    compute = trainer.compute_loss

    def record(*args, **kwargs):
        loss = compute(*args, **kwargs)
        losses.append(float((loss[0] if isinstance(loss, tuple) else loss).detach()))
        return loss
    trainer.compute_loss = record
    trainer.train()
    return losses, {name: value.detach() for name, value in trained.named_parameters()}


def train_own(binary, folder, case, steps, adapter, out):
    flags = case.flags + (['--adapter', adapter] if case.lora else [])
    size = ['--batch-size', '256', '--epochs', str(steps)] if case.whole else [
        '--batch-size', str(BATCH), '--max-steps', str(steps)]
    data = folder + ('/pairs.jsonl' if case.pairs else '/chats.jsonl')
    subprocess.run([binary, 'train', '--model', folder + '/model', '--data', data, *flags, *size, '--optimizer', 'sgd',
                    '--lr', str(RATE), '--lr-scheduler', 'constant', '--max-grad-norm', '0', '--no-shuffle',
                    '--no-length-grouping', '--log-every', '1', '--mixed-precision', 'no', '--out', out, '--quiet'],
                   check=True)
    with open(f'{out}/metrics.jsonl', encoding='utf8') as file:
        events = [json.loads(line) for line in file]
    losses = [event['loss'] for event in events if 'loss' in event and 'lr' in event]
    if case.lora:
        trained = safetensors.torch.load_file(f'{out}/adapter/adapter_model.safetensors')
        return losses, {name.replace('.weight', '.default.weight'): value for name, value in trained.items()}
    shutil.copytree(out, out + '.copy')  # onnx refuses hard links
    trained = onnx.load(out + '.copy/model.onnx')
    return losses, {tensor.name.removeprefix('model.'): torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
                    for tensor in trained.graph.initializer}


def with_adapter(model, folder):
    """Returns the model with an adapter whose B is not zero, and writes it as PEFT does."""
    targets = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj']
    adapted = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets,
                                                                        task_type='CAUSAL_LM'))
    for name, value in adapted.named_parameters():
        if 'lora_B' in name:
            torch.nn.init.normal_(value, std=0.1)
    adapted.save_pretrained(folder)
    return adapted


def gap(ours, theirs):
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(ours, theirs))


def gradient_gap(initial, stepped, own):
    """Returns the largest difference of the updates of a weight, and the number of weights compared."""
    worst, compared = 0.0, 0
    for weight, before in initial.items():
        if weight not in own:
            continue
        expected, got = before - stepped[weight], before - own[weight].reshape(before.shape)
        worst = max(worst, float((expected - got).abs().max() / expected.abs().max().clamp(min=1e-12)))
        compared += 1
    return worst, compared


def compare(name, model, tokenizer, rows, steps, binary, folder):
    case = CASES[name]
    adapter = f'{folder}/adapter'
    trained = with_adapter(model, adapter) if case.lora else model
    initial = {weight: value.detach().clone() for weight, value in trained.named_parameters() if value.requires_grad}
    own_rows = rows['pairs' if case.pairs else 'chats']
    single, stepped = train_trl(trained, tokenizer, own_rows, 1, case, False, folder + '/trl')
    own, own_stepped = train_own(binary, folder, case, 1, adapter, f'{folder}/{name}1')
    gradients, compared = gradient_gap(initial, stepped, own_stepped)
    theirs, _ = train_trl(trained, tokenizer, own_rows, steps, case, False, folder + '/trl')
    exact, _ = train_trl(trained, tokenizer, own_rows, steps, case, True, folder + '/trl')
    ours, _ = train_own(binary, folder, case, steps, adapter, f'{folder}/{name}')
    print(f'{name}: one step: loss {gap(own, single):.1e}, gradients of {compared} of {len(initial)} weights '
          f'{gradients:.1e}; {len(ours)} steps: loss {gap(ours, exact):.1e} from float64, '
          f'PyTorch {gap(theirs, exact):.1e}', flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--case', default=','.join(CASES))
    parser.add_argument('--steps', type=int, default=20)
    parser.add_argument('--onnxtrain', default='build/release/bin/onnxtrain')
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    tokenizer, model = make_tokenizer(), make_model()
    rows = {'pairs': draw_pairs(BATCH * args.steps), 'chats': draw_chats(BATCH * args.steps)}
    with tempfile.TemporaryDirectory() as folder:
        export(model, tokenizer, f'{folder}/model')
        for name, drawn in rows.items():
            with open(f'{folder}/{name}.jsonl', 'w', encoding='utf8') as file:
                file.writelines(json.dumps(row) + '\n' for row in drawn)
        for name in args.case.split(','):
            compare(name, model, tokenizer, rows, args.steps, args.onnxtrain, folder)


if __name__ == '__main__':
    main()
