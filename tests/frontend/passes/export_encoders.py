"""Exports small transformers with PyTorch: export_encoders.py FOLDER writes NAME_OPSET.onnx for three opsets each."""
import math
import sys
import warnings

import torch
from torch import nn

D, HEADS, S, N = 16, 2, 6, 3
warnings.filterwarnings("ignore")
torch.manual_seed(0)
tokens = torch.randint(0, 20, (N, S))


class Encoder(nn.Module):
    def __init__(self, norm_first=False, activation="gelu"):
        super().__init__()
        layer = nn.TransformerEncoderLayer(D, HEADS, 32, activation=activation, batch_first=True, norm_first=norm_first)
        self.embedding, self.position = nn.Embedding(20, D), nn.Parameter(torch.randn(1, S, D) * 0.1)
        self.layers, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(D, 5)

    def forward(self, x, padding=None):
        return self.out(self.layers(self.embedding(x) + self.position, src_key_padding_mask=padding).mean(1))


class Decoder(nn.Module):
    """Causal, heads cut out of one product, the tanh form of GELU written out."""

    def __init__(self):
        super().__init__()
        self.embedding, self.qkv, self.merge = nn.Embedding(20, D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.up, self.down = nn.Linear(D, 32), nn.Linear(32, D)
        self.register_buffer("causal", torch.tril(torch.ones(S, S)).view(1, 1, S, S))

    def forward(self, x):
        h = self.embedding(x)
        heads = [t.view(N, S, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm1(h)).split(D, dim=2)]
        scores = heads[0] @ heads[1].transpose(-2, -1) * (1 / math.sqrt(D // HEADS))
        weights = scores.masked_fill(self.causal == 0, float("-inf")).softmax(-1)
        h = h + self.merge((weights @ heads[2]).transpose(1, 2).reshape(N, S, D))
        z = self.up(self.norm2(h))
        return h + self.down(0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * torch.pow(z, 3)))))


class Bert(nn.Module):
    """Keys transposed after the heads are split, an additive mask, a small epsilon."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.out = nn.Embedding(20, D), nn.LayerNorm(D, eps=1e-12), nn.Linear(D, D)
        self.q, self.k, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x, keep):
        h = self.norm(self.embedding(x))
        q, k, v = (f(h).view(N, S, HEADS, -1).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(D // HEADS) + (1 - keep[:, None, None, :].float()) * -10000.0
        return nn.functional.gelu(self.out((scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(N, S, D)))


padding = torch.zeros(N, S, dtype=torch.bool)
MODELS = {
    "encoder": (Encoder(), (tokens,)),
    "encoder_prenorm": (Encoder(norm_first=True), (tokens,)),
    "encoder_padding": (Encoder(), (tokens, padding)),
    "decoder": (Decoder(), (tokens,)),
    "bert": (Bert(), (tokens, torch.ones(N, S, dtype=torch.int64))),
}
for name, (model, inputs) in MODELS.items():
    for opset in (11, 13, 16):
        torch.onnx.export(model.eval(), inputs, f"{sys.argv[1]}/{name}_{opset}.onnx", opset_version=opset)
