"""Names that modules of diffusers have in ComfyUI's files. Source: diffusers/loaders/single_file_utils.py."""

import re

_DOUBLE, _SINGLE, _WAN = r"transformer_blocks\.(\d+)\.", r"single_transformer_blocks\.(\d+)\.", r"blocks\.(\d+)\."
#: Pattern of the module -> name. In FLUX q, k and v are one matrix, in single blocks with the first one of the MLP.
NAMES = {re.compile(pattern): name for pattern, name in {
    _DOUBLE + r"attn\.to_[qkv]": r"double_blocks.\1.img_attn.qkv",
    _DOUBLE + r"attn\.add_[qkv]_proj": r"double_blocks.\1.txt_attn.qkv",
    _DOUBLE + r"attn\.to_out\.0": r"double_blocks.\1.img_attn.proj",
    _DOUBLE + r"attn\.to_add_out": r"double_blocks.\1.txt_attn.proj",
    _DOUBLE + r"ff\.(net\.0\.proj|linear_in)": r"double_blocks.\1.img_mlp.0",
    _DOUBLE + r"ff\.(net\.2|linear_out)": r"double_blocks.\1.img_mlp.2",
    _DOUBLE + r"ff_context\.(net\.0\.proj|linear_in)": r"double_blocks.\1.txt_mlp.0",
    _DOUBLE + r"ff_context\.(net\.2|linear_out)": r"double_blocks.\1.txt_mlp.2",
    _SINGLE + r"(attn\.to_[qkv]|proj_mlp|attn\.to_qkv_mlp_proj)": r"single_blocks.\1.linear1",
    _SINGLE + r"(proj_out|attn\.to_out)": r"single_blocks.\1.linear2",
    _WAN + r"attn1\.to_([qkv])": r"blocks.\1.self_attn.\2",
    _WAN + r"attn1\.to_out\.0": r"blocks.\1.self_attn.o",
    _WAN + r"attn2\.to_([qkv])": r"blocks.\1.cross_attn.\2",
    _WAN + r"attn2\.add_([kv])_proj": r"blocks.\1.cross_attn.\2_img",
    _WAN + r"attn2\.to_out\.0": r"blocks.\1.cross_attn.o",
    _WAN + r"ffn\.net\.0\.proj": r"blocks.\1.ffn.0",
    _WAN + r"ffn\.net\.2": r"blocks.\1.ffn.2",
}.items()}


def comfyui_name(module):
    """Returns the module's name in ComfyUI's file; its own name if it is in no block of FLUX, FLUX.2 or Wan."""
    return next((found.expand(name) for pattern, name in NAMES.items() if (found := pattern.fullmatch(module))), module)
