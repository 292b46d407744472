"""Reasons of known differences: (pattern of "EXPORTER ARCHITECTURE FILE", pattern of the difference, reason).

An entry that matches no difference of a whole sweep is reported, so that the table stays true.
"""
REASONS = (
    (r'', r'onnxruntime differs', 'The exporter wrote another function: onnxruntime computes it as well.'),
    (r'^(dynamo-optimize|torchscript|optimum) ', r'without parameters of BatchNorm',
     'The exporter folded BatchNorm into the convolution before it.'),
)
