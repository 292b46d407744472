"""The architectures of the sweep: small configurations, whose weights are random.

Each table maps a name to what differs from the family's defaults. `model` (default: the name) is the model type of
transformers, `class` its class of transformers, the rest are fields of the configuration.
"""

# Fields of transformers' configurations; those that a configuration lacks are ignored by it.
TINY = {
    'vocab_size': 67, 'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'intermediate_size': 48,
    'max_position_embeddings': 64, 'type_vocab_size': 2, 'num_labels': 5, 'pad_token_id': 0, 'bos_token_id': 1,
    'eos_token_id': 2, 'hidden_dropout_prob': 0.0, 'attention_probs_dropout_prob': 0.0, 'hidden_dropout': 0.0,
    'attention_dropout': 0.0, 'dropout': 0.0, 'activation_dropout': 0.0, 'drop_path_rate': 0.0, 'use_cache': False,
}
GROUPED = {'num_key_value_heads': 2, 'head_dim': 8}
SEQ2SEQ_TINY = {
    'd_model': 32, 'encoder_layers': 2, 'decoder_layers': 2, 'encoder_attention_heads': 4, 'decoder_attention_heads': 4,
    'encoder_ffn_dim': 48, 'decoder_ffn_dim': 48, 'decoder_start_token_id': 2, 'forced_eos_token_id': None,
}
SPEECH_TINY = {
    'conv_dim': [16, 16], 'conv_stride': [5, 4], 'conv_kernel': [10, 5], 'num_feat_extract_layers': 2,
    'num_conv_pos_embeddings': 8, 'num_conv_pos_embedding_groups': 2, 'feat_proj_dropout': 0.0, 'layerdrop': 0.0,
    'apply_spec_augment': False, 'mask_time_prob': 0.0, 'final_dropout': 0.0, 'classifier_proj_size': 16,
    'tdnn_dim': [16, 16], 'tdnn_kernel': [3, 1], 'tdnn_dilation': [1, 1], 'xvector_output_dim': 16,
}
STAGES = {'depths': [1, 1], 'hidden_sizes': [16, 32]}

ENCODERS = {  # classes for masked language modelling
    'bert': {}, 'roberta': {}, 'distilbert': {}, 'albert': {'embedding_size': 16}, 'electra': {'embedding_size': 16},
    'xlm-roberta': {}, 'mpnet': {}, 'deberta': {'relative_attention': True, 'pos_att_type': ['c2p', 'p2c']},
    'deberta-v2': {'relative_attention': True, 'pos_att_type': ['c2p', 'p2c'], 'position_buckets': 8}, 'roformer': {},
    'squeezebert': {'embedding_size': 32, 'q_groups': 2, 'k_groups': 2, 'v_groups': 2, 'intermediate_groups': 2,
        'output_groups': 2, 'post_attention_groups': 1},
    'mobilebert': {'embedding_size': 16, 'intra_bottleneck_size': 16, 'true_hidden_size': 16,
        'num_feedforward_networks': 2},
    'convbert': {'embedding_size': 16, 'head_ratio': 2},
    'nystromformer': {'num_landmarks': 4, 'segment_means_seq_len': 8}, 'flaubert': {'pre_norm': True}, 'xlm': {},
    'esm': {'position_embedding_type': 'rotary', 'mask_token_id': 3, 'token_dropout': False},
    'modernbert': {'global_attn_every_n_layers': 2, 'local_attention': 4, 'cls_token_id': 1, 'sep_token_id': 2,
        'reference_compile': False},
    'data2vec-text': {}, 'rembert': {'input_embedding_size': 16, 'output_embedding_size': 24}, 'megatron-bert': {},
    'ibert': {}, 'camembert': {}, 'fnet': {}, 'ernie': {},
    'roc_bert': {'pronunciation_vocab_size': 9, 'shape_vocab_size': 9, 'pronunciation_embed_dim': 8,
        'shape_embed_dim': 8},
    'splinter': {'class': 'AutoModelForQuestionAnswering', 'question_token_id': 3},
    'longformer': {'attention_window': 4}, 'big_bird': {'attention_type': 'original_full'},
    'luke': {'entity_vocab_size': 9}, 'layoutlm': {}, 'lilt': {'class': 'AutoModelForTokenClassification'},
    'markuplm': {'class': 'AutoModelForTokenClassification'},
}
DECODERS = {  # classes for causal language modelling
    'llama': GROUPED,
    'llama-llama3': {'model': 'llama', **GROUPED, 'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0,
        'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 32}},
    'llama-yarn': {'model': 'llama', **GROUPED, 'rope_scaling': {'rope_type': 'yarn', 'factor': 4.0,
        'original_max_position_embeddings': 16}},
    'llama-linear': {'model': 'llama', **GROUPED, 'rope_scaling': {'rope_type': 'linear', 'factor': 2.0}},
    'mistral': {**GROUPED, 'sliding_window': 4}, 'mixtral': {**GROUPED, 'num_local_experts': 2}, 'qwen2': GROUPED,
    'qwen3': GROUPED, 'qwen3_moe': {**GROUPED, 'num_experts': 4, 'num_experts_per_tok': 2, 'moe_intermediate_size': 16},
    'gemma': GROUPED, 'gemma2': {**GROUPED, 'query_pre_attn_scalar': 8, 'sliding_window': 4},
    'gemma3_text': {**GROUPED, 'query_pre_attn_scalar': 8, 'sliding_window': 4, 'layer_types': ['sliding_attention',
        'full_attention']},
    'phi': {'partial_rotary_factor': 0.5}, 'phi3': {**GROUPED, 'original_max_position_embeddings': 64}, 'gpt2': {},
    'gpt_neo': {'attention_types': [[['global', 'local'], 1]], 'num_layers': 2, 'window_size': 4},
    'gpt_neox': {'rotary_pct': 0.5}, 'gptj': {'rotary_dim': 4}, 'codegen': {'rotary_dim': 4},
    'opt': {'ffn_dim': 48, 'word_embed_proj_dim': 32}, 'bloom': {'n_layer': 2, 'n_head': 4},
    'falcon': {'alibi': False, 'new_decoder_architecture': False}, 'falcon-alibi': {'model': 'falcon', 'alibi': True},
    'mpt': {'d_model': 32, 'n_heads': 4, 'n_layers': 2}, 'stablelm': {**GROUPED, 'partial_rotary_factor': 0.25},
    'starcoder2': GROUPED, 'olmo': GROUPED, 'olmo2': GROUPED, 'granite': GROUPED, 'cohere': GROUPED,
    'smollm3': {**GROUPED, 'no_rope_layer_interval': 2}, 'gpt_bigcode': {}, 'helium': GROUPED,
    'glm': {**GROUPED, 'partial_rotary_factor': 0.5}, 'nemotron': GROUPED, 'arcee': GROUPED, 'biogpt': {},
    'xglm': {'ffn_dim': 48, 'd_model': 32, 'num_layers': 2, 'attention_heads': 4}, 'persimmon': {}, 'ernie4_5': GROUPED,
    'exaone4': {**GROUPED, 'sliding_window': 4, 'layer_types': ['sliding_attention', 'full_attention']},
    'gpt_oss': {**GROUPED, 'num_local_experts': 4, 'num_experts_per_tok': 2, 'sliding_window': 4},
    'deepseek_v3': {'num_key_value_heads': 4, 'q_lora_rank': 16, 'kv_lora_rank': 16, 'qk_rope_head_dim': 4,
        'qk_nope_head_dim': 8, 'v_head_dim': 8, 'n_routed_experts': 4, 'num_experts_per_tok': 2, 'n_group': 2,
        'topk_group': 1, 'moe_intermediate_size': 16, 'first_k_dense_replace': 1},
    'mamba': {'state_size': 4, 'conv_kernel': 3, 'use_mambapy': False},
}
SEQ2SEQ = {  # classes for text to text
    't5': {'d_model': 32, 'd_kv': 8, 'd_ff': 48, 'num_layers': 2, 'num_heads': 4, 'dropout_rate': 0.0,
        'decoder_start_token_id': 0},
    'mt5': {'d_model': 32, 'd_kv': 8, 'd_ff': 48, 'num_layers': 2, 'num_heads': 4, 'dropout_rate': 0.0,
        'decoder_start_token_id': 0},
    'longt5': {'d_model': 32, 'd_kv': 8, 'd_ff': 48, 'num_layers': 2, 'num_heads': 4, 'dropout_rate': 0.0,
        'decoder_start_token_id': 0, 'local_radius': 4, 'global_block_size': 4},
    'bart': SEQ2SEQ_TINY, 'mbart': SEQ2SEQ_TINY, 'marian': SEQ2SEQ_TINY, 'pegasus': SEQ2SEQ_TINY,
    'blenderbot': SEQ2SEQ_TINY, 'blenderbot-small': SEQ2SEQ_TINY, 'm2m_100': SEQ2SEQ_TINY,
}
VISION = {  # classes for image classification
    'vit': {}, 'deit': {'class': 'DeiTForImageClassification'},
    'beit': {'use_relative_position_bias': True, 'out_indices': [1, 2]},
    'data2vec-vision': {'use_shared_relative_position_bias': True, 'out_indices': [1, 2]},
    'swin': {'embed_dim': 8, 'depths': [2, 1], 'num_heads': [2, 4], 'window_size': 4, 'patch_size': 2},
    'swinv2': {'embed_dim': 8, 'depths': [2, 1], 'num_heads': [2, 4], 'window_size': 4, 'patch_size': 2},
    'donut-swin': {'class': 'AutoModel', 'embed_dim': 8, 'depths': [2, 1], 'num_heads': [2, 4], 'window_size': 4,
        'patch_size': 2},
    'convnext': {**STAGES, 'num_stages': 2}, 'convnextv2': {**STAGES, 'num_stages': 2},
    'resnet': {**STAGES, 'embedding_size': 8}, 'regnet': {**STAGES, 'embedding_size': 8, 'groups_width': 8},
    'mobilenet_v1': {'depth_multiplier': 0.25, 'classifier_dropout_prob': 0.0},
    'mobilenet_v2': {'depth_multiplier': 0.35, 'classifier_dropout_prob': 0.0},
    'mobilevit': {'hidden_sizes': [16, 24, 32], 'neck_hidden_sizes': [8, 8, 8, 16, 16, 24, 32],
        'num_attention_heads': 4, 'classifier_dropout_prob': 0.0},
    'mobilevitv2': {'image_size': 64, 'patch_size': 2, 'width_multiplier': 0.25, 'classifier_dropout_prob': 0.0},
    'poolformer': {**STAGES, 'depths': [1, 1, 1, 1], 'hidden_sizes': [8, 8, 16, 16]},
    'levit': {'class': 'LevitForImageClassification', 'hidden_sizes': [16, 24, 32], 'num_attention_heads': [2, 3, 4],
        'depths': [1, 1, 1], 'key_dim': [8, 8, 8], 'patch_size': 16, 'image_size': 64},
    'cvt': {'drop_path_rate': [0.0] * 3, 'patch_sizes': [7, 3, 3], 'embed_dim': [16, 24, 32], 'num_heads': [1, 2, 4],
        'depth': [1, 2, 3], 'drop_rate': [0.0] * 3, 'num_hidden_layers': 3},
    'segformer': {'hidden_sizes': [8, 8, 16, 16], 'depths': [1, 1, 1, 1], 'num_attention_heads': [1, 1, 2, 2],
        'decoder_hidden_size': 16, 'classifier_dropout_prob': 0.0, 'class': 'AutoModelForSemanticSegmentation'},
    'dinov2': {'mlp_ratio': 2, 'patch_size': 8}, 'dinov2_with_registers': {'mlp_ratio': 2, 'patch_size': 8},
    'vit_msn': {},
    'pvt': {'hidden_sizes': [8, 8, 16, 16], 'depths': [1, 1, 1, 1], 'num_attention_heads': [1, 1, 2, 2],
        'image_size': 32},
    'pvt_v2': {'hidden_sizes': [8, 8, 16, 16], 'depths': [1, 1, 1, 1], 'num_attention_heads': [1, 1, 2, 2],
        'image_size': 32, 'linear_attention': False},
    'efficientnet': {'width_coefficient': 0.25, 'depth_coefficient': 0.25, 'hidden_dim': 320, 'dropout_rate': 0.0},
    'bit': {**STAGES, 'embedding_size': 16, 'num_groups': 4},
    'focalnet': {'embed_dim': 16, 'hidden_sizes': [16, 32], 'depths': [1, 1], 'focal_levels': [2, 2],
        'focal_windows': [3, 3]},
    'hiera': {'patch_size': [4, 4], 'patch_stride': [4, 4], 'patch_padding': [0, 0], 'embed_dim': 16, 'num_heads': [1,
        2], 'depths': [1, 1], 'image_size': [32, 32], 'masked_unit_size': [4, 4], 'num_query_pool': 1,
        'query_stride': [2, 2]},
    'dpt': {'class': 'AutoModelForDepthEstimation', 'num_hidden_layers': 4, 'backbone_out_indices': [0, 1, 2, 3],
        'neck_hidden_sizes': [8, 8, 16, 16], 'fusion_hidden_size': 16, 'is_hybrid': False, 'backbone_config': None},
    'glpn': {'class': 'AutoModelForDepthEstimation', 'hidden_sizes': [8, 8, 16, 16], 'depths': [1, 1, 1, 1],
        'num_attention_heads': [1, 1, 2, 2], 'decoder_hidden_size': 16},
    'yolos': {'class': 'AutoModelForObjectDetection', 'num_detection_tokens': 4, 'image_size': [32, 32]},
    'swin2sr': {'class': 'Swin2SRForImageSuperResolution', 'patch_size': 1, 'image_size': 16, 'embed_dim': 16,
        'depths': [2, 1], 'num_heads': [2, 4], 'window_size': 4, 'upscale': 2, 'num_channels': 3},
    'vit_mae': {'class': 'AutoModel', 'mask_ratio': 0.0}, 'siglip_vision_model': {'class': 'AutoModel'},
    'clip_vision_model': {'class': 'AutoModel'},
}
SPEECH = {  # classes for CTC on waves
    'wav2vec2': SPEECH_TINY, 'hubert': SPEECH_TINY, 'unispeech': SPEECH_TINY, 'unispeech-sat': SPEECH_TINY,
    'wavlm': {**SPEECH_TINY, 'num_buckets': 8, 'max_bucket_distance': 16},
    'data2vec-audio': {**SPEECH_TINY, 'num_conv_pos_embeddings': 2, 'conv_pos_kernel_size': 5},
    'sew': {**SPEECH_TINY, 'squeeze_factor': 2},
    'sew-d': {**SPEECH_TINY, 'squeeze_factor': 2, 'position_buckets': 8, 'pos_att_type': ['p2c', 'c2p']},
    'wav2vec2-conformer': {**SPEECH_TINY, 'conv_depthwise_kernel_size': 5, 'position_embeddings_type': 'relative'},
    'audio-spectrogram-transformer': {'class': 'AutoModelForAudioClassification', 'max_length': 32, 'num_mel_bins': 16,
        'patch_size': 8, 'frequency_stride': 8, 'time_stride': 8},
    'whisper': {**SEQ2SEQ_TINY, 'class': 'AutoModelForSpeechSeq2Seq', 'num_mel_bins': 8, 'max_target_positions': 16,
        'begin_suppress_tokens': None, 'suppress_tokens': None},
    'speech_to_text': {**SEQ2SEQ_TINY, 'class': 'AutoModelForSpeechSeq2Seq', 'input_feat_per_channel': 8,
        'conv_channels': 16, 'conv_kernel_sizes': [3, 3], 'max_source_positions': 64, 'max_target_positions': 16},
    'moonshine': {'class': 'AutoModelForSpeechSeq2Seq', 'encoder_num_hidden_layers': 2, 'decoder_num_hidden_layers': 2,
        'encoder_num_attention_heads': 4, 'decoder_num_attention_heads': 4, 'encoder_num_key_value_heads': 4,
        'decoder_num_key_value_heads': 4, 'decoder_start_token_id': 1},
}
TOWER = {'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'intermediate_size': 48}
TOWERS = {
    'text_config': {**TOWER, 'vocab_size': 67, 'max_position_embeddings': 16, 'eos_token_id': 2, 'projection_size': 32},
    'vision_config': {**TOWER, 'image_size': 32, 'patch_size': 8}, 'projection_dim': 32,
}
PAIRS = {  # of a text and an image
    'clip': {**TOWERS, 'class': 'AutoModel'}, 'siglip': {**TOWERS, 'class': 'AutoModel'},
    'owlvit': {**TOWERS, 'class': 'OwlViTForObjectDetection'}, 'chinese_clip': {**TOWERS, 'class': 'AutoModel'},
    'clipseg': {**TOWERS, 'class': 'CLIPSegModel'},
}
SERIES = {
    'patchtst': {'class': 'PatchTSTForPrediction'}, 'patchtsmixer': {'class': 'PatchTSMixerForPrediction'},
}

SMALL = {'embed_dim': 32, 'depth': 2, 'num_heads': 4}
STAGED = {'embed_dim': 16, 'depths': (2, 1), 'num_heads': (2, 4), 'img_size': 32, 'patch_size': 2, 'window_size': 4}
TIMM = {  # arguments of timm.create_model; `size`: that of the image
    'lcnet_035': {}, 'mobilenetv3_small_050': {}, 'resnet10t': {'channels': (8, 8, 16, 16), 'stem_width': 8},
    'ghostnet_050': {}, 'tinynet_e': {}, 'regnetx_002': {}, 'mnasnet_small': {}, 'repghostnet_050': {},
    'convnext_atto': {'depths': (1, 1, 1, 1), 'dims': (8, 16, 16, 32)}, 'edgenext_xx_small': {}, 'mobilevit_xxs': {},
    'starnet_s1': {'depths': (1, 1, 1, 1), 'base_dim': 8}, 'efficientvit_b0': {}, 'dla46_c': {},
    'inception_next_atto': {'depths': (1, 1, 1, 1), 'dims': (16, 16, 32, 32)},
    'mambaout_femto': {'depths': (1, 1, 1, 1), 'dims': (16, 16, 32, 32)},
    'vit_tiny_patch16_224': {**SMALL, 'img_size': 32, 'patch_size': 8},
    'vit_relpos_small_patch16_224': {**SMALL, 'img_size': 32, 'patch_size': 8},
    'deit3_small_patch16_224': {**SMALL, 'img_size': 32, 'patch_size': 8},
    'beit_base_patch16_224': {**SMALL, 'img_size': 32, 'patch_size': 8},
    'eva02_tiny_patch14_224': {**SMALL, 'img_size': 32, 'patch_size': 8},
    'cait_xxs24_224': {**SMALL, 'img_size': 32, 'patch_size': 8}, 'xcit_nano_12_p16_224': {**SMALL, 'img_size': 32},
    'mixer': {'class': 'mlp_mixer.MlpMixer', 'embed_dim': 32, 'num_blocks': 2, 'img_size': 32, 'patch_size': 8},
    'gmlp': {'class': 'mlp_mixer.MlpMixer', 'block_layer': 'SpatialGatingBlock', 'mlp_layer': 'GatedMlp',
        'mlp_ratio': 6, 'embed_dim': 32, 'num_blocks': 2, 'img_size': 32, 'patch_size': 8},
    'resmlp': {'class': 'mlp_mixer.MlpMixer', 'block_layer': 'ResBlock', 'norm_layer': 'Affine', 'mlp_ratio': 4,
        'embed_dim': 32, 'num_blocks': 2, 'img_size': 32, 'patch_size': 8},
    'swin_tiny_patch4_window7_224': STAGED, 'swinv2_tiny_window8_256': STAGED, 'swinv2_cr_tiny_224': STAGED,
    'levit_128s': {'img_size': 64, 'size': 64}, 'pvt_v2_b0': {},
    'poolformer': {'class': 'metaformer.MetaFormer', 'depths': (1, 1, 1, 1), 'dims': (8, 16, 16, 32)},
    'davit_tiny': {'depths': (1, 1), 'embed_dims': (16, 32), 'num_heads': (2, 4), 'window_size': 4},
    'coatnet_nano_rw_224': {'img_size': 64, 'size': 64, 'depths': (1, 1, 1, 1), 'embed_dim': (32, 32, 64, 64),
        'stem_width': (8, 8)},
    'nest': {'class': 'nest.Nest', 'img_size': 32, 'patch_size': 2, 'embed_dims': (16, 16, 32), 'num_heads': (2, 2, 4),
        'depths': (1, 1, 1)},
}
TORCHVISION = {  # functions of torchvision.models, or a class with its arguments; `size`: that of the image
    'resnet18': {}, 'mobilenet_v2': {'width_mult': 0.25}, 'mobilenet_v3_small': {}, 'shufflenet_v2_x0_5': {},
    'squeezenet1_1': {}, 'mnasnet0_5': {}, 'efficientnet_b0': {}, 'regnet_x_400mf': {},
    'googlenet': {'aux_logits': False},
    'densenet': {'class': 'DenseNet', 'growth_rate': 8, 'block_config': (2, 2, 2), 'num_init_features': 16},
    'vision_transformer': {'class': 'VisionTransformer', 'image_size': 32, 'patch_size': 8, 'num_layers': 2,
        'num_heads': 4, 'hidden_dim': 32, 'mlp_dim': 48},
    'swin_transformer': {'class': 'SwinTransformer', 'patch_size': [2, 2], 'embed_dim': 16, 'depths': [2, 2],
        'num_heads': [2, 4], 'window_size': [4, 4]},
    'swin_v2': {'class': 'SwinTransformer', 'patch_size': [2, 2], 'embed_dim': 16, 'depths': [2, 2], 'num_heads': [2,
        4], 'window_size': [4, 4], 'block': 'SwinTransformerBlockV2', 'downsample_layer': 'PatchMergingV2'},
    'maxvit': {'class': 'MaxVit', 'input_size': (64, 64), 'stem_channels': 8, 'partition_size': 2, 'size': 64,
        'block_channels': [8, 16], 'block_layers': [1, 1], 'head_dim': 8, 'stochastic_depth_prob': 0.0},
    'lraspp_mobilenet_v3_large': {'class': 'segmentation.lraspp_mobilenet_v3_large'},
}
PYG = (  # layers of torch_geometric.nn; two of them make a network
    'GCNConv', 'GATConv', 'GATv2Conv', 'SAGEConv', 'GINConv', 'GraphConv', 'TransformerConv', 'TAGConv', 'SGConv',
    'ChebConv', 'ARMAConv', 'APPNP', 'LEConv', 'ClusterGCNConv', 'ResGatedGraphConv', 'EdgeConv', 'GENConv', 'MFConv',
    'FiLMConv', 'SuperGATConv', 'GatedGraphConv',
)
JAX = ('mlp', 'cnn', 'batch_norm', 'transformer', 'lstm', 'gru', 'mixer', 'equinox_mlp', 'equinox_attention')
KERAS = ('dense', 'cnn', 'batch_norm', 'separable', 'lstm', 'gru', 'bidirectional', 'transformer', 'embedding', 'unet')
PADDLE = ('lenet', 'mlp', 'resnet', 'mobilenet_v2', 'transformer', 'lstm', 'gru', 'shufflenet', 'squeezenet')

FAMILIES = {
    'transformers': (*ENCODERS, *DECODERS, *SEQ2SEQ, *VISION, *SPEECH, *PAIRS, *SERIES), 'timm': tuple(TIMM),
    'torchvision': tuple(TORCHVISION), 'pyg': PYG, 'decoders': tuple(DECODERS),
    'jax': JAX, 'keras': KERAS, 'paddle': PADDLE,
}
TORCH = ('transformers', 'timm', 'torchvision', 'pyg')
EXPORTERS = {  # the framework's environment, and the families of architectures
    'optimum': ('torch', ('transformers',)),
    'dynamo-optimize': ('torch', TORCH), 'dynamo': ('torch', TORCH), 'torchscript': ('torch', TORCH),
    'dynamo-train': ('torch', TORCH), 'torchscript-train': ('torch', TORCH),
    'genai-fp32': ('genai', ('decoders',)), 'genai-int4': ('genai', ('decoders',)),
    'jax2onnx': ('jax', ('jax',)), 'tf2onnx': ('keras', ('keras',)), 'paddle2onnx': ('paddle', ('paddle',)),
}


def names(families):
    """Yields the architectures of the families as FAMILY/NAME."""
    for family in families:
        yield from (f"{'transformers' if family == 'decoders' else family}/{name}" for name in FAMILIES[family])
