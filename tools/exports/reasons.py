"""Reasons of known differences: (pattern of "EXPORTER ARCHITECTURE FILE", pattern of the difference, reason).

An entry that matches no difference of a whole sweep is reported, so that the table stays true.
"""
def without_only(part):
    """Returns the pattern of a difference in which nothing else is missing."""
    return rf'without (`[^`]*({part})[^`]*`(, )?)+(;|$)'


REASONS = (
    (r'', r'onnxruntime differs', 'The exporter wrote another function: onnxruntime computes it as well.'),
    (r'^(dynamo-optimize|torchscript|optimum) ', r'without parameters of BatchNorm',
     'The exporter folded BatchNorm into the convolution before it.'),
    (r'^dynamo-optimize ', without_only('position_embedding|wpe|embed_positions'),
     'The exporter looked up the positions of its example: the file holds these rows of the table alone.'),
    (r'^dynamo-optimize ', without_only('relative_attention_bias'),
     'The exporter looked up the distances of its example: the file holds these rows of the table alone.'),
    (r'^(dynamo-optimize|torchscript) ', r'without .*(continuous_position_bias_mlp|cpb_mlp|meta_mlp)',
     'The exporter computed the bias that a network makes of constant positions: the file holds the result alone.'),
    (r'', without_only(r'weight\.original0'),
     'The exporter computed the weight that a weight norm makes of two parameters.'),
    (r'', r'NonZero.* input 0 must be a constant',
     'Shapes depend on data, which is not supported: the tokens of an expert, the state at the end of a text.'),
)
