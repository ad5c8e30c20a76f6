"""Reads experts from the checkpoint when they have tokens, so that their stack is never in memory.

transformers 5 has all experts of a layer in parameters [E, ..], and its modules take one matrix at a time by indexing. An
object of reading.py takes the place of the parameter and reads the matrix, with the conversion that makes the parameter.
"""

import ast
import inspect
import textwrap
from dataclasses import dataclass

import torch
from transformers.core_model_loading import Concatenate, Interleave, MergeModulelist, Transpose, dot_natural_key


def stacks_of(module):
    """Returns the names of the parameters of a module that have a matrix for each expert."""
    experts = getattr(module, "num_experts", None)
    return [name for name, p in module._parameters.items() if p is not None and p.dim() == 3 and len(p) == experts]


def takes_one_at_a_time(module):
    """Reports whether forward() loops over experts and uses its stacks only by indexing them with one expert."""
    names, used = set(stacks_of(module)), set()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(type(module).forward))))
    except (OSError, TypeError, SyntaxError):
        return False
    if not any(isinstance(node, (ast.For, ast.comprehension)) for node in ast.walk(tree)):
        return False
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            if not (isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) == "self"):
                continue
            used.add(node.attr)
            indexed = isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.slice, ast.Name)
            asked = isinstance(parent, ast.Attribute) and parent.attr in ("shape", "dtype", "device")
            if not (indexed or asked):
                return False
    return used == names


def multiplies_all_at_once(module):
    """Reports whether the module is that of Llama 4: every expert gets all tokens, with zeros for those of others."""
    return type(module).__name__ == "Llama4TextMoe"


def forward_llama4(moe, hidden_states):
    """Returns the output of a Llama4TextMoe, computed with only the tokens of each expert. The order of sums
    differs."""
    x = hidden_states.reshape(-1, moe.hidden_dim)
    scores, logits = moe.router(x)
    out, experts = moe.shared_expert(x), moe.experts
    for expert in range(moe.num_experts):
        tokens = scores[:, expert].nonzero().squeeze(1)
        if len(tokens):
            rows = x[tokens] * scores[tokens, expert, None]
            gate, up = (rows @ experts.gate_up_proj[expert]).chunk(2, -1)
            out.index_add_(0, tokens, (up * experts.act_fn(gate)) @ experts.down_proj[expert])
    return out, logits


def streamed_modules(layer):
    """Returns the modules of a layer whose experts can be read one by one, by name, and the reason why not for the
    other modules with experts."""
    found, others = {}, {}
    gathered = {f"{name}.experts" for name, m in layer.named_modules() if multiplies_all_at_once(m)}
    for name, module in layer.named_modules():
        if stacks_of(module):
            if name in gathered or takes_one_at_a_time(module):
                found[name] = module
            else:
                others[name] = f"what {type(module).__name__} does with its experts is not known"
    return found, others


def keeps_experts_apart(operation):
    """Reports whether a conversion treats each matrix of a stack by itself."""
    if isinstance(operation, MergeModulelist):
        return operation.dim == 0
    if isinstance(operation, Transpose):
        return operation.dim0 > 0 and operation.dim1 > 0 and not operation.check_dims
    if isinstance(operation, Concatenate):
        return operation.dim > 0 and operation.num_shards_attribute is None
    return isinstance(operation, Interleave) and operation.dim > 0


def experts_of_token(config):
    return getattr(config.get_text_config(), "num_experts_per_tok", None) or 1


@dataclass
class Source:
    """The checkpoint tensors of a parameter: `files` by tensor name, `patterns` of the conversion by tensor name, and
    the conversion, or None if the parameter is stored as it is."""

    files: dict
    patterns: dict
    converter: object

    def by_pattern(self):
        """Returns pattern -> tensor names, in the order of the experts."""
        found = {}
        for key in sorted(self.files, key=dot_natural_key):
            found.setdefault(self.patterns[key], []).append(key)
        return found

    def is_plain(self, shape):
        """Reports whether a matrix is stored as it is."""
        return self.converter is None and len(self.files) == 1 and all(
            file.get_slice(key).get_shape() == list(shape) for key, file in self.files.items())

    def read_whole(self, device, dtype):
        (key, file), = self.files.items()
        return file.get_slice(key)[...].to(device=device, dtype=dtype)

    def read_rows(self, rows, device, dtype):
        """Returns rows of a matrix that is stored as it is. `rows` is a list."""
        (key, file), = self.files.items()
        stored = file.get_slice(key)
        return torch.cat([stored[row:row + 1] for row in rows]).to(device=device, dtype=dtype)

    def problem(self, shape):
        """Returns why a single expert of a parameter of that shape cannot be read, or None if it can."""
        operations = self.converter.operations if self.converter else []
        for operation in operations:
            if not keeps_experts_apart(operation):
                return f"{operation!r} makes them of what is stored"
        merged = any(isinstance(operation, MergeModulelist) for operation in operations)
        found = self.by_pattern()
        if not found or self.converter and set(found) != set(self.converter.source_patterns):
            return "not all of it is stored"
        for keys in found.values():
            shapes = {tuple(self.files[key].get_slice(key).get_shape()) for key in keys}
            if len(keys) != (shape[0] if merged else 1) or len(shapes) != 1:
                return f"{len(keys)} tensors are stored for {shape[0]} experts"
            if not merged and (len(one := shapes.pop()) != 3 or one[0] != shape[0]):
                return f"{keys[0]} has shape {list(one)}"
        return None

    def read(self, expert, device, dtype):
        """Returns the matrix of an expert, as indexing the parameter would."""
        merged = self.converter and any(isinstance(op, MergeModulelist) for op in self.converter.operations)
        tensors = {}
        for pattern, keys in self.by_pattern().items():
            key = keys[expert] if merged else keys[0]
            part = self.files[key].get_slice(key)
            part = part[...] if merged else part[expert:expert + 1]
            tensors[pattern] = [part.to(device=device, dtype=dtype)]
        if self.converter is None:
            return next(iter(tensors.values()))[0][0]
        for operation in self.converter.operations:
            tensors = operation.convert(tensors, source_patterns=self.converter.source_patterns,
                                        target_patterns=self.converter.target_patterns)
        matrix = next(iter(tensors.values()))
        return (matrix[0] if isinstance(matrix, list) else matrix)[0]
