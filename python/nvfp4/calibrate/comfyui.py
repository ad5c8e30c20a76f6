"""Names that modules of diffusers have in ComfyUI's files. Sources: diffusers/loaders/single_file_utils.py;
github.com/Comfy-Org/ComfyUI, comfy/utils.py (mmdit_to_diffusers), comfy/ldm/qwen_image/model.py."""

import re

from .._errors import InvalidValueError


def table(**blocks):
    """Returns rows of a pattern and a name. The pattern of a row is that of its list of blocks and its own one."""
    return [(re.compile(rf"{block}\.(\d+)\.{pattern}"), name)
            for block, rows in blocks.items() for pattern, name in rows.items()]


#: In FLUX q, k and v are one matrix, in single blocks with the first one of the MLP.
FLUX = table(
    transformer_blocks={
        r"attn\.to_[qkv]": r"double_blocks.\1.img_attn.qkv",
        r"attn\.add_[qkv]_proj": r"double_blocks.\1.txt_attn.qkv",
        r"attn\.to_out\.0": r"double_blocks.\1.img_attn.proj",
        r"attn\.to_add_out": r"double_blocks.\1.txt_attn.proj",
        r"ff\.(net\.0\.proj|linear_in)": r"double_blocks.\1.img_mlp.0",
        r"ff\.(net\.2|linear_out)": r"double_blocks.\1.img_mlp.2",
        r"ff_context\.(net\.0\.proj|linear_in)": r"double_blocks.\1.txt_mlp.0",
        r"ff_context\.(net\.2|linear_out)": r"double_blocks.\1.txt_mlp.2"},
    single_transformer_blocks={
        r"(attn\.to_[qkv]|proj_mlp|attn\.to_qkv_mlp_proj)": r"single_blocks.\1.linear1",
        r"(proj_out|attn\.to_out)": r"single_blocks.\1.linear2"})
SD3 = table(transformer_blocks={
    r"(attn2?)\.to_[qkv]": r"joint_blocks.\1.x_block.\2.qkv",
    r"attn\.add_[qkv]_proj": r"joint_blocks.\1.context_block.attn.qkv",
    r"(attn2?)\.to_out\.0": r"joint_blocks.\1.x_block.\2.proj",
    r"attn\.to_add_out": r"joint_blocks.\1.context_block.attn.proj",
    r"ff\.net\.0\.proj": r"joint_blocks.\1.x_block.mlp.fc1",
    r"ff\.net\.2": r"joint_blocks.\1.x_block.mlp.fc2",
    r"ff_context\.net\.0\.proj": r"joint_blocks.\1.context_block.mlp.fc1",
    r"ff_context\.net\.2": r"joint_blocks.\1.context_block.mlp.fc2"})
WAN = table(blocks={
    r"attn1\.to_([qkv])": r"blocks.\1.self_attn.\2",
    r"attn1\.to_out\.0": r"blocks.\1.self_attn.o",
    r"attn2\.to_([qkv])": r"blocks.\1.cross_attn.\2",
    r"attn2\.add_([kv])_proj": r"blocks.\1.cross_attn.\2_img",
    r"attn2\.to_out\.0": r"blocks.\1.cross_attn.o",
    r"ffn\.net\.0\.proj": r"blocks.\1.ffn.0",
    r"ffn\.net\.2": r"blocks.\1.ffn.2"})
#: Class of the model -> rows. Qwen-Image has the same names in both.
NAMES = {"FluxTransformer2DModel": FLUX, "Flux2Transformer2DModel": FLUX, "SD3Transformer2DModel": SD3,
         "WanTransformer3DModel": WAN, "QwenImageTransformer2DModel": []}


def comfyui_name(module, model_class):
    """Returns the module's name in ComfyUI's file, or its own name outside the blocks. Raises InvalidValueError for a
    class whose names are not known."""
    if model_class not in NAMES:
        raise InvalidValueError(f"comfyui = True: the module is a {model_class}, must be one of {', '.join(NAMES)}")
    matches = ((pattern.fullmatch(module), name) for pattern, name in NAMES[model_class])
    return next((found.expand(name) for found, name in matches if found), module)
