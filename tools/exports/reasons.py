"""Reasons of known differences: (pattern of "EXPORTER ARCHITECTURE FILE", pattern of the difference, reason).

An entry that matches no difference of a whole sweep is reported, so that the table stays true.
"""
def without_only(part):
    """Returns the pattern of a difference in which nothing else is missing."""
    return rf'without (`[^`]*({part})[^`]*`(, )?)+(;|$)'


REASONS = (
    (r'^genai-int4 ', r'trains .* without ', 'Weights of 4 bits are not trained.'),
    (r'', r'onnxruntime differs', 'The exporter wrote another function: onnxruntime computes it as well.'),
    (r'^torchscript-train transformers/patchtst ', r'do not fit the output',
     'The exporter wrote another function: onnxruntime computes it as well.'),
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
    (r'^dynamo-optimize transformers/deberta', r'without .*pos_(proj|q_proj|key_proj|query_proj)',
     'The exporter computed the keys and queries of relative positions, products of two parameters.'),
    (r'^dynamo-optimize timm/xcit', r'without `patch_embed.*with `val_',
     'The exporter folded BatchNorm, and computed the positions that a convolution makes of coordinates.'),
    (r'^genai-fp32 transformers/(phi|nemotron) ', r'loss off',
     'The exporter wrote another epsilon: the framework computes the same with it.'),
    (r'^dynamo-optimize transformers/bit ', r'^gradient norm',
     'The exporter computed the standardized weights of convolutions.'),
    (r'^torchscript', r'^exit code.*onnxruntime does not load', 'The exporter wrote a file that is not valid.'),
    (r'', r'NonZero.* input 0 must be a constant',
     'Shapes depend on data, which is not supported: the tokens of an expert.'),
)
