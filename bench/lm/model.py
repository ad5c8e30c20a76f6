"""A language model whose linear layers have the weights of a quantized checkpoint, in FP32.

The model runs in transformers' own classes; only expert stacks are replaced, by a loop over experts,
so that the input of each projection can be quantized.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForCausalLM

import nvfp4
from peers import round_to_e2m1


class Checkpoint:
    """A ModelOpt or compressed-tensors folder: by module, `weights` in FP32 [N, K] and the factors `before`
    [K] that the input is multiplied by; by name, the `other` tensors. `stored`: codes and global scale of NVFP4, by
    module; weights in FP8 have a scale for the matrix or for each row. `weights_only`: NVFP4 weights without an input
    scale, if others have one."""

    def __init__(self, folder):
        self.weights, self.before, self.other, self.stored = {}, {}, {}, {}
        tensors = {}
        for file in sorted(Path(folder).glob("*.safetensors")):
            tensors |= load_file(file)
        for name, tensor in tensors.items():
            module, _, kind = name.rpartition(".")
            if kind in ("weight_packed", "weight") and tensor.dtype == torch.uint8:
                self.weights[module], scale = self._weight(tensors, module, tensor, kind)
                self.stored[module] = tensor, scale
            elif kind == "weight" and tensor.dtype == torch.float8_e4m3fn:
                scale = tensors[f"{module}.weight_scale"]
                self.weights[module] = tensor.float() * (scale.reshape(-1, 1) if scale.dim() else scale)
            elif kind == "pre_quant_scale":
                self.before[module] = tensor.float()
            elif tensor.is_floating_point():
                self.other[name] = tensor.float()
        scaled = {name.rpartition(".")[0] for name in tensors if name.endswith((".input_scale", ".input_global_scale"))}
        self.weights_only = self.stored.keys() - scaled if scaled else set()
        if not self.weights:
            raise SystemExit(f"{folder}: holds no NVFP4 and no FP8 weights")

    def _weight(self, tensors, module, codes, kind):
        if kind == "weight":  # ModelOpt: multiplier
            scale = tensors[f"{module}.weight_scale_2"].reshape(())
        else:  # compressed-tensors: divisor
            scale = 1 / tensors[f"{module}.weight_global_scale"].reshape(())
        block = tensors[f"{module}.weight_scale"].view(torch.uint8)
        shape = (codes.shape[0], codes.shape[1] * 2)
        return nvfp4.QuantizedTensor(codes, block, scale.float(), shape).dequantize(torch.float32), scale.float()


def at_random(seed):
    """Global scales that lie between once and twice the given ones: other codes, of the same squared error."""
    random = torch.Generator().manual_seed(seed)
    return lambda scale: scale * 2 ** float(torch.rand((), generator=random))


def of_modelopt(scale):
    """amax / 2688, of amax / 1536 of weights in BF16."""
    return float(torch.tensor(scale * 1536).bfloat16().float() / 2688)


class Rescaled(Checkpoint):
    """The same weights of `model`, quantized by `quantizer` with what `rescale` makes of the global scales of
    `folder`."""

    def __init__(self, folder, model, quantizer, rescale):
        super().__init__(folder)
        plain = {}
        for file in sorted(Path(model).glob("*.safetensors")):
            plain |= load_file(file)
        self.error = 0.0
        for module, (_, scale) in sorted(self.stored.items()):
            w = plain[f"{module}.weight"].float()
            q = nvfp4.quantize(w, quantizer, global_scale=rescale(float(scale)))
            self.weights[module] = q.dequantize(torch.float32)
            self.error += float((self.weights[module] - w).double().square().sum())


#: Activations by four over six as peers' defaults are documented: the norm of block scales, the power of errors.
FOUR_OVER_SIX = {"FlashInfer": (448, 1), "TransformerEngine": (256, 1)}


def four_over_six(rows, norm, power):
    """Returns rows rounded with the better of two scales of each block, amax / 6 and amax / 4; a tie takes the first."""
    blocks = rows.float().unflatten(-1, (-1, 16))
    amax = blocks.abs().amax(-1, keepdim=True)
    unit = (amax.amax(1, keepdim=True) / (6 * norm)).clamp(min=1e-30)
    found, least = None, torch.inf
    for top in (6, 4):
        scale = (amax / (top * unit)).clamp(max=448).to(torch.float8_e4m3fn).float() * unit
        rounded = round_to_e2m1(blocks / torch.where(scale > 0, scale, 1)) * scale
        error = (rounded - blocks).abs().pow(power).sum(-1, keepdim=True)
        found = rounded if found is None else torch.where(error < least, rounded, found)
        least = error
    return found.flatten(1)


class QuantizedInput:
    """Quantizes and dequantizes a layer's input, a global scale for each row; None leaves it alone."""

    def __init__(self):
        self.quantizer, self.on_device = None, True

    def __call__(self, x):
        if self.quantizer is None:
            return x
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        if self.quantizer in FOUR_OVER_SIX:
            return four_over_six(rows, *FOUR_OVER_SIX[self.quantizer]).reshape(x.shape)
        if not self.on_device:
            rows = rows.cpu()
        try:
            q = nvfp4.quantize(rows, self.quantizer, scope="vector")
        except nvfp4.UnsupportedError:  # a package without CUDA: the CPU gives the same bits
            self.on_device = False
            return self(x)
        return q.dequantize(torch.float32).reshape(x.shape).to(x.device)


class Linear(nn.Module):
    def __init__(self, weight, bias, before, quantize):
        super().__init__()
        self.weight, self.bias, self.quantize = weight, bias, quantize
        self.register_buffer("before", before)

    def forward(self, x):
        if self.before is not None:
            x = x * self.before
        return nn.functional.linear(self.quantize(x), self.weight, self.bias)


class Experts(nn.Module):
    """gate_up [E, 2·I, K] and down [E, K, I], as transformers 5 stacks them."""

    def __init__(self, gate_up, down, activation, quantize):
        super().__init__()
        self.gate_up, self.down, self.activation, self.quantize = gate_up, down, activation, quantize

    def forward(self, x, top_k_index, top_k_weights):
        out = torch.zeros_like(x)
        x = self.quantize(x)
        for expert in top_k_index.unique().tolist():
            token, choice = (top_k_index == expert).nonzero(as_tuple=True)
            gate, up = nn.functional.linear(x[token], self.gate_up[expert]).chunk(2, -1)
            hidden = self.quantize(self.activation(gate) * up)
            part = nn.functional.linear(hidden, self.down[expert])
            out.index_add_(0, token, part * top_k_weights[token, choice, None])
        return out


class Variant:
    """The model of `folder`, with the weights of `quantized`, a folder or a Checkpoint, in place of its own
    (None: as it is)."""

    def __init__(self, folder, quantized=None, device="cpu"):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.inputs = QuantizedInput()
        if quantized is not None:
            checkpoint = quantized if isinstance(quantized, Checkpoint) else Checkpoint(quantized)
            self._replace(checkpoint)
            for left in (checkpoint.weights, checkpoint.before):
                if left:
                    raise SystemExit(f"{quantized}: no layer of the model is called {sorted(left)[0]}")
            self.model.load_state_dict(checkpoint.other, strict=False)  # AWQ changes norms
        self.model.to(device)

    def _replace(self, checkpoint):
        weights = checkpoint.weights
        for name, module in list(self.model.named_modules()):
            if hasattr(module, "gate_up_proj") and hasattr(module, "down_proj") and not isinstance(
                module.gate_up_proj, nn.Module
            ):
                inputs = QuantizedInput() if f"{name}.0.down_proj" in checkpoint.weights_only else self.inputs
                self._set(name, self._experts(name, module, weights, inputs))
            elif isinstance(module, nn.Linear) and name in weights:
                self._set(name, Linear(nn.Parameter(weights.pop(name), False), module.bias,
                                       checkpoint.before.pop(name, None),
                                       QuantizedInput() if name in checkpoint.weights_only else self.inputs))

    def _experts(self, name, module, weights, inputs):
        gate_up, down = module.gate_up_proj.data.clone(), module.down_proj.data.clone()
        for expert in range(len(gate_up)):
            take = lambda part: weights.pop(f"{name}.{expert}.{part}")
            gate_up[expert] = torch.cat([take("gate_proj"), take("up_proj")])
            down[expert] = take("down_proj")
        return Experts(nn.Parameter(gate_up, False), nn.Parameter(down, False), module.act_fn, inputs)

    def _set(self, name, module):
        parent, _, last = name.rpartition(".")
        setattr(self.model.get_submodule(parent), last, module)

    @torch.no_grad()
    def log_probabilities(self, tokens):
        return torch.log_softmax(self.model(tokens).logits.float(), -1)


def model_name(folder):
    """Returns the name of a model in the table."""
    config = json.loads((Path(folder) / "config.json").read_text())
    return f"{Path(folder).name} ({config['architectures'][0]})"
