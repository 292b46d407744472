#!/usr/bin/env python3
"""Compares adapters with ONNX Runtime and PEFT.

    adapters.py TOOL [--folder FOLDER]

Run by hand, with PyPI's numpy, onnx, onnxruntime, torch and peft. An encoder of two layers is exported, and adapted by
TOOL and by PEFT. Prints the largest difference of the logits of

1. the base with optional inputs, fed with adapter.onnx_adapter by onnxruntime's LoraAdapter, and the merged model,
2. the same base without an adapter, and the base; the adapter as onnxruntime writes it, merged here, and the merged
   model,
3. PeftModel.from_pretrained of TOOL's folder, with whole modules and biases, and the merged model,
4. what TOOL merges of PEFT's folder, and PEFT's model: adapters alone, with modules_to_save, with biases.

Exit status 0 where all are at most 1e-5.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort
import peft
import torch

LIMIT = 1e-5


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear1, self.linear2 = torch.nn.LayerNorm(16), torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.linear2(torch.tanh(self.linear1(self.norm(x))))


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = torch.nn.Linear(6, 16)
        self.layers = torch.nn.ModuleList([Layer(), Layer()])
        self.classifier = torch.nn.Linear(16, 3)

    def forward(self, x):
        h = self.inputs(x)
        for layer in self.layers:
            h = layer(h)
        return self.classifier(h.mean(1))


class Checks:
    def __init__(self, tool, folder):
        self.tool, self.folder, self.worst = tool, folder, 0.0
        torch.manual_seed(0)
        self.x = np.random.default_rng(1).normal(size=(8, 5, 6)).astype(np.float32)
        self.base = Encoder().eval()
        torch.onnx.export(self.base, (torch.from_numpy(self.x),), folder / 'm.onnx', input_names=['x'],
                          output_names=['y'], dynamic_axes={'x': {0: 'batch'}, 'y': {0: 'batch'}}, dynamo=False)
        labels = np.random.default_rng(2).integers(0, 3, 64)
        data = np.random.default_rng(3).normal(size=(64, 5, 6)).astype(np.float32)
        np.savez(folder / 'd.npz', x=data, label=labels)

    def run(self, *words):
        subprocess.run([self.tool, *words], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def copy(self):
        model = Encoder().eval()
        model.load_state_dict(self.base.state_dict())
        return model

    def logits(self, model, adapter=None):
        settings = ort.SessionOptions()
        settings.log_severity_level = 3  # it warns of every optional input
        session = ort.InferenceSession(self.folder / model, settings)
        options = ort.RunOptions()
        if adapter is not None:
            options.add_active_adapter(adapter)
        return session.run(None, {'x': self.x}, options)[0]

    def compare(self, what, a, b):
        difference = float(np.abs(a - b).max())
        self.worst = max(self.worst, difference)
        print(f'{difference:.1e}  {what}')

    def check_onnxruntime(self):
        self.run('--model', 'm.onnx', '--data', 'd.npz', '--epochs', '6', '--lr', '0.02', '--lora-rank', '2',
                 '--lora-rank', 'linear2=3', '--lora-alpha', '5', '--train', 'classifier.*', '--train', '*norm.bias',
                 '--adapter-out', 'merged,peft,onnx', '--quiet', '--out', 'r')
        file = str(self.folder / 'r/adapter.onnx_adapter')
        read = ort.AdapterFormat.read_adapter(file)
        print(f'        adapter.onnx_adapter: format {read.get_format_version()}, {len(read.get_parameters())} tensors')
        adapter = ort.LoraAdapter()
        adapter.Load(file)
        merged, base = self.logits('r/model.onnx'), self.logits('m.onnx')
        print(f'        the training moved logits by {np.abs(merged - base).max():.2f}')
        fed = self.logits('r/model.adapter-inputs.onnx', adapter)
        self.compare('base with inputs and adapter, merged model', fed, merged)
        self.compare('base with inputs, base', self.logits('r/model.adapter-inputs.onnx'), base)
        theirs = ort.AdapterFormat()
        theirs.set_adapter_version(3)
        theirs.set_model_version(2)
        theirs.set_parameters(read.get_parameters())
        theirs.export_adapter(str(self.folder / 'theirs.onnx_adapter'))
        self.run('export', '--model', 'm.onnx', '--adapter', 'theirs.onnx_adapter', '--out', 'theirs.onnx')
        self.compare('file written by onnxruntime, merged here', self.logits('theirs.onnx'), merged)

    def check_ours_in_peft(self, flags, name):
        self.run('--model', 'm.onnx', '--data', 'd.npz', '--epochs', '4', '--lr', '0.02', '--lora-rank', '2', *flags,
                 '--quiet', '--out', name)
        model = peft.PeftModel.from_pretrained(self.copy(), self.folder / name / 'adapter').eval()
        with torch.no_grad():
            y = model(torch.from_numpy(self.x)).numpy()
        self.compare(f'PEFT of our {name}, merged model', y, self.logits(f'{name}/model.onnx'))

    def check_theirs(self, name, **settings):
        config = peft.LoraConfig(r=3, lora_alpha=7, target_modules=['linear1', 'linear2'], **settings)
        model = peft.get_peft_model(self.copy(), config).eval()
        torch.manual_seed(4)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter += 0.05 * torch.randn_like(parameter)
            y = model(torch.from_numpy(self.x)).numpy()
        model.save_pretrained(self.folder / name)
        self.run('export', '--model', 'm.onnx', '--adapter', name, '--out', f'{name}.onnx')
        self.compare(f'{name} of PEFT, merged here', self.logits(f'{name}.onnx'), y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('tool')
    parser.add_argument('--folder')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        checks = Checks(pathlib.Path(args.tool).resolve(), pathlib.Path(args.folder or temporary))
        checks.check_onnxruntime()
        checks.check_ours_in_peft([], 'adapters')
        checks.check_ours_in_peft(['--train', 'classifier.*', '--train', 'inputs.*'], 'modules')
        checks.check_ours_in_peft(['--train', '*.bias'], 'biases')
        checks.check_theirs('peft')
        checks.check_theirs('peft_modules', modules_to_save=['classifier', 'inputs'])
        checks.check_theirs('peft_biases', bias='all')
        checks.check_theirs('peft_rslora', use_rslora=True, rank_pattern={'layers.1.linear1': 2},
                            alpha_pattern={'layers.0.linear2': 3})
    sys.exit(checks.worst > LIMIT)


if __name__ == '__main__':
    main()
