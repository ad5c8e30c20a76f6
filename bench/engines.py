#!/usr/bin/env python3
"""Tokens per second of models in vLLM and SGLang: NVFP4 on our kernels, on the engine's own, and BF16.

Synthetic models with random weights, made on the GPU: Llama 8 B, and a mixture of experts like Qwen3-30B-A3B with 12 layers or
with `--layers` of them.

  engines.py make FOLDER                     checkpoints, 16 GB in BF16 for each model; a RAM disk loads fastest
  engines.py run FOLDER --json FILE          runs every kind on every model, a process for each, and prints a table
  engines.py table FILE...                   prints the table again
  engines.py decode CHECKPOINT --json FILE   writes 128 greedy tokens and their log probabilities
  engines.py compare FILE FILE...            compares such files with the first
  engines.py refit FOLDER                    seconds until a served Llama has new weights that come in BF16

`run` decodes 128 tokens after prompts of 64 random tokens, greedily, at each batch: output tokens per second of the whole call,
prompts included; and long prompts, eight of 1024 for example: input tokens per second until each has its first output token.
Medians of three. CUDA graphs are on, and torch.compile as is the default of the engine.
Needs a GPU, vLLM 0.26 or SGLang 0.5.16 or newer, transformers, and this package built with CUDA.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

BATCHES = (1, 8, 32, 128, 512)
PROMPT, DECODED = 64, 128
VOCABULARY = 100_000  #: prompts have tokens below it

#: name of a kind: (checkpoint, the engine's `quantization`, environment, more options of the engine)
KINDS = {
    "ours": ("w4a16", "nvfp4", {}, {}),
    "fp8": ("w4a16", "nvfp4", {"NVFP4_ARITHMETIC": "fp8"}, {}),
    "vllm": ("w4a16", None, {}, {}),
    "bf16": ("bf16", None, {}, {}),
    "w4a4": ("w4a4", "nvfp4", {"NVFP4_ACTIVATIONS": "nvfp4"}, {}),
    "w4a4-auto": ("w4a4", "nvfp4", {}, {}),
    "w4a4-vllm": ("w4a4", None, {}, {}),
    "mixed": ("mixed", "nvfp4", {}, {}),
    "mixed-vllm": ("mixed", None, {}, {}),
    "sglang-ours": ("w4a4", "nvfp4", {}, {}),
    "sglang": ("w4a4", None, {}, {}),
    "sglang-bf16": ("bf16", None, {}, {}),
    "humming": ("w4a16-ct", None, {}, {"linear_backend": "humming", "moe_backend": "humming"}),
}
SGLANG = [kind for kind in KINDS if kind.startswith("sglang")]
#: checkpoint: options of nvfp4.quantize_checkpoint
CHECKPOINTS = {
    "w4a16": dict(scheme="w4a16"),
    "w4a4": dict(scheme="w4a4"),
    "mixed": dict(recipe="nvidia"),
    "w4a16-ct": dict(scheme="w4a16", format="compressed-tensors"),
}
#: what the log of an engine tells about a start
LOGGED = {
    "linear": r"(?:Using|leveraging the) (\w+) (?:for NVFP4 GEMM|kernel)",
    "experts": r"Using '?([\w ]+?)'? (?:NvFp4|Unquantized) MoE backend",
    "attention": r"Using (\w+) attention backend",
    "model_gib": r"(?:Model loading took |Load weight end.*mem usage=)([\d.]+) G",
    "load_s": r"(?:Model loading took .*?|Load weight end\. elapsed=)([\d.]+) s",
    "compile_s": r"torch\.compile took ([\d.]+) s",
    "kv_tokens": r"GPU KV cache size: ([\d,]+) tokens",
}
ERROR = r"\b(\w*(?:Error|Exception): .{0,300})"


def configs(layers):
    import transformers

    sizes = dict(num_attention_heads=32, max_position_embeddings=16384, tie_word_embeddings=False)
    return {
        "llama": transformers.LlamaConfig(
            **sizes, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_key_value_heads=8,
            vocab_size=128256, rms_norm_eps=1e-5),
        "experts": transformers.Qwen3MoeConfig(
            **sizes, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_hidden_layers=layers,
            num_key_value_heads=4, head_dim=128, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True,
            decoder_sparse_step=1, mlp_only_layers=[], vocab_size=151936),
    }


def distinct_experts(model, rows=8, decoded=32):
    """Returns the mean over layers of how many experts a batch of `rows` chooses for one decoded token."""
    import torch

    torch.manual_seed(1)
    tokens = torch.randint(VOCABULARY, (rows, PROMPT), device="cuda")
    for _ in range(decoded):
        out = model(input_ids=tokens, use_cache=False, output_router_logits=True, logits_to_keep=1)
        tokens = torch.cat([tokens, out.logits[:, -1:].argmax(-1)], 1)
    last = [logits.view(rows, -1, logits.shape[-1])[:, -1] for logits in out.router_logits]
    return statistics.mean(each.topk(model.config.num_experts_per_tok).indices.unique().numel() for each in last)


def make(options):
    """Writes FOLDER/MODEL/CHECKPOINT for all that is asked for and not there."""
    import torch
    import transformers

    import nvfp4

    transformers.utils.logging.set_verbosity_error()
    for name in options.models:
        folder = options.folder / name
        plain = folder / "bf16"
        if not plain.exists():
            torch.manual_seed(0)
            start = time.monotonic()
            with torch.device("cuda"), torch.no_grad():
                model = transformers.AutoModelForCausalLM.from_config(configs(options.layers)[name], dtype=torch.bfloat16).eval()
                model.get_input_embeddings().weight.normal_()  # tokens of different words stay different
                if name == "experts":
                    print(f"{name}: 8 rows choose {distinct_experts(model):.1f} of {model.config.num_experts}", flush=True)
                model.save_pretrained(folder / "part")
            del model
            torch.cuda.empty_cache()
            (folder / "part").rename(plain)
            print(f"{name} bf16: {time.monotonic() - start:.1f} s", flush=True)
        (folder / "amax.json").write_text('{"*": 16}')
        for checkpoint in dict.fromkeys(KINDS[kind][0] for kind in options.kinds):
            if checkpoint == "bf16" or (folder / checkpoint).exists():
                continue
            start = time.monotonic()
            nvfp4.quantize_checkpoint(plain, folder / "part", method="max", input_amax=folder / "amax.json",
                                      **CHECKPOINTS[checkpoint])
            (folder / "part").rename(folder / checkpoint)
            print(f"{name} {checkpoint}: {time.monotonic() - start:.1f} s", flush=True)


def prompts(count, length):
    import random

    draw = random.Random(count)
    return [{"prompt_token_ids": [draw.randrange(VOCABULARY) for _ in range(length)]} for _ in range(count)]


class Vllm:
    """vLLM, imported by the constructor and started by start()."""

    def __init__(self):
        import vllm
        import vllm.entrypoints.llm  # noqa: F401

        self.module = vllm

    def start(self, model, quantization, longest, batches, more):
        """Returns what to print about the start."""
        self.llm = self.module.LLM(**{**dict(
            model=model, quantization=quantization, dtype="bfloat16", seed=0, skip_tokenizer_init=True, max_model_len=longest,
            max_num_seqs=max(batches), enable_prefix_caching=False, gpu_memory_utilization=0.85,
            compilation_config={"cudagraph_capture_sizes": sorted(batches)}), **more})
        cache = self.llm.llm_engine.vllm_config.cache_config
        return dict(vllm=self.module.__version__, kv_blocks=cache.num_gpu_blocks, kv_block_size=cache.block_size)

    def generate(self, texts, decoded):
        """Returns the number of tokens decoded for each text."""
        params = self.module.SamplingParams(temperature=0, max_tokens=decoded, ignore_eos=True, detokenize=False)
        return [len(each.outputs[0].token_ids) for each in self.llm.generate(texts, params, use_tqdm=False)]


class Sglang:
    """SGLang, with the interface of Vllm."""

    def __init__(self):
        import sglang
        import sglang.srt.entrypoints.engine  # noqa: F401

        self.module = sglang

    def start(self, model, quantization, longest, batches, more):
        self.engine = self.module.Engine(**{**dict(
            model_path=model, quantization=quantization, dtype="bfloat16", random_seed=0, skip_tokenizer_init=True,
            context_length=longest, max_running_requests=max(batches), disable_radix_cache=True, mem_fraction_static=0.85,
            cuda_graph_bs_decode=sorted(batches), log_level="info"), **more})
        return dict(sglang=self.module.__version__)

    def generate(self, texts, decoded):
        out = self.engine.generate(input_ids=[text["prompt_token_ids"] for text in texts],
                                   sampling_params=dict(temperature=0, max_new_tokens=decoded, ignore_eos=True))
        return [len(each["output_ids"]) for each in out]


def seconds(engine, texts, decoded):
    """Returns the median of three calls after one that warms up."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        counts = engine.generate(texts, decoded)
        times.append(time.perf_counter() - start)
        assert set(counts) == {decoded}, counts
    return statistics.median(times[1:])


def one(options):
    """Measures one kind on one model; prints a line of JSON for each figure. Imports, then waits for a line on stdin."""
    (model,), (kind,) = options.models, options.kinds
    checkpoint, quantization, environment, more = KINDS[kind]
    os.environ.update(environment)
    engine = Sglang() if kind in SGLANG else Vllm()
    said = dict(model=model, kind=kind)

    def say(**figures):
        print("FIGURE " + json.dumps({**said, **figures}), flush=True)

    sys.stdin.readline()
    start = time.monotonic()
    longest = max(length for _, length in options.prompts) + PROMPT + DECODED
    told = engine.start(str(options.folder / model / checkpoint), quantization, longest, options.batches,
                        {**more, **json.loads(options.engine)})
    say(**told, start_s=round(time.monotonic() - start, 1))
    for batch in options.batches:
        took = seconds(engine, prompts(batch, PROMPT), DECODED)
        say(batch=batch, tokens_per_s=round(batch * DECODED / took, 1))
    for count, length in options.prompts:
        took = seconds(engine, prompts(count, length), 1)
        say(batch=f"{count}x{length}", tokens_per_s=round(count * length / took, 1), first_token_ms=round(took * 1000, 1))


class Process:
    """A process that measures one kind on one model, and what it printed."""

    def __init__(self, options, model, kind):
        self.model, self.kind, self.log, self.figures = model, kind, [], []
        command = [sys.executable, __file__, "one", str(options.folder), "--models", model, "--kinds", kind,
                   "--engine", options.engine, "--batches", *map(str, options.batches),
                   "--prompts", *(f"{count}x{length}" for count, length in options.prompts)]
        quiet = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace", start_new_session=True, env={**os.environ, **quiet})
        self.reader = threading.Thread(target=self._read, args=(options.json,), daemon=True)
        self.reader.start()

    def _read(self, file):
        for line in self.process.stdout:
            if not line.startswith("FIGURE "):
                self.log.append(line)
                continue
            self.figures.append(json.loads(line.removeprefix("FIGURE ")))
            write(file, self.figures[-1])

    def run(self, limit):
        """Lets the process go on and waits for its end, at most `limit` seconds. Returns what its log tells."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.close()
            self.process.wait(limit)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass
        self.kill()
        self.reader.join(5)
        text = "".join(self.log)
        told = {name: match[-1] for name, pattern in LOGGED.items() if (match := re.findall(pattern, text, re.M))}
        if self.process.returncode:
            told["errors"] = list(dict.fromkeys(re.findall(ERROR, text)))[-4:]
        return dict(model=self.model, kind=self.kind, ended=self.process.returncode, **told)

    def kill(self):
        """Ends the process with its children, which hold memory of the GPU."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def write(file, figure):
    line = json.dumps(figure)
    print(line, flush=True)
    if file:
        with open(file, "a", encoding="utf-8") as to:
            to.write(line + "\n")


def run(options):
    start = time.monotonic()
    card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                          capture_output=True, text=True, check=True).stdout.strip().replace("\n", "; ")
    write(options.json, dict(card=card, date=time.strftime("%Y-%m-%d"), engine=json.loads(options.engine)))
    jobs = [(model, kind) for model in options.models for kind in options.kinds
            if (options.folder / model / KINDS[kind][0]).exists()]
    following = None
    for number, (model, kind) in enumerate(jobs):
        left = options.limit_s - (time.monotonic() - start)
        if left < options.least_s:
            write(options.json, dict(left_out=jobs[number:]))
            break
        current = following or Process(options, model, kind)
        # The next one imports meanwhile.
        following = Process(options, *jobs[number + 1]) if number + 1 < len(jobs) else None
        began = time.monotonic()
        write(options.json, {**current.run(left), "wall_s": round(time.monotonic() - began, 1)})
        if options.logs:
            (options.logs / f"{model}-{kind}.log").write_text("".join(current.log), encoding="utf-8")
    if following:
        following.kill()
    if options.json:
        table([options.json])


def table(files):
    """Prints Markdown: a row for each kind of each model, and its ratios to the engine's own kernels and to BF16."""
    rows, columns = {}, []
    for line in (line for file in files for line in open(file, encoding="utf-8")):
        figure = json.loads(line)
        if "tokens_per_s" in figure:
            rows.setdefault((figure["model"], figure["kind"]), {})[figure["batch"]] = figure["tokens_per_s"]
            columns += [figure["batch"]] if figure["batch"] not in columns else []
    print("| | " + " | ".join(map(str, columns)) + " |\n|" + "---|" * (len(columns) + 1))
    for (model, kind), cells in rows.items():
        print(f"| {model} {kind} | " + " | ".join(f"{cells[c]:.0f}" if c in cells else "" for c in columns) + " |")
    for (model, kind), cells in rows.items():
        for peer in ("sglang", "sglang-bf16") if kind in SGLANG else ("vllm", "bf16"):
            other = rows.get((model, peer), {})
            if other and peer != kind:
                print(f"{model} {kind} / {peer}: " + "  ".join(f"{c}: {cells[c] / other[c]:.2f}" for c in columns
                                                               if c in cells and c in other))


def decode(options):
    """Writes the greedy continuation of one prompt: tokens, log probabilities of the 20 likeliest at each place."""
    import vllm

    llm = vllm.LLM(**{**dict(model=str(options.folder), dtype="bfloat16", seed=0, skip_tokenizer_init=True, max_model_len=256,
                             max_num_seqs=8, enforce_eager=True, gpu_memory_utilization=0.1), **json.loads(options.engine)})
    params = vllm.SamplingParams(temperature=0, max_tokens=DECODED, ignore_eos=True, detokenize=False, logprobs=20)
    out = llm.generate([{"prompt_token_ids": options.tokens}], params, use_tqdm=False)[0].outputs[0]
    places = [{token: each.logprob for token, each in place.items()} for place in out.logprobs]
    write(options.json, dict(engine=json.loads(options.engine), tokens=list(out.token_ids), places=places))


def compare(options):
    """Prints for each file the first token that differs from the first file's, and how far log probabilities are apart there."""
    first, *others = (json.loads(pathlib.Path(file).read_text(encoding="utf-8")) for file in options.files)
    for other in others:
        pairs = list(zip(first["tokens"], other["tokens"], strict=True))
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
        apart = [abs(a[token] - b[token]) for a, b in zip(first["places"][:same + 1], other["places"][:same + 1])
                 for token in a if token in b]
        print(f"{json.dumps(other['engine'])}: {same} of {len(pairs)} tokens as {json.dumps(first['engine'])}; log probabilities "
              f"differ by {statistics.mean(apart):.4f} in the mean, by {max(apart):.4f} at most")


def new_weights(worker, plain, served, method):
    """Returns seconds in a worker of vLLM: quantizing alone, and replacing the weights, twice. They lie on the GPU."""
    import torch
    from safetensors.torch import load_file

    from nvfp4.engines.refit import quantize_weights

    weights = {name: t for file in pathlib.Path(plain).glob("*.safetensors") for name, t in load_file(file, "cuda").items()}

    def timed(use):
        torch.cuda.synchronize()
        start = time.perf_counter()
        use(quantize_weights(weights.items(), served, method))
        torch.cuda.synchronize()
        return round(time.perf_counter() - start, 2)

    replace = lambda new: worker.reload_weights(weights_iterator=new)  # noqa: E731
    return dict(method=method, quantize_s=timed(list), replace_s=[timed(replace), timed(replace)])


def refit(options):
    """Prints the seconds for two methods. The weights of `max` are those of the checkpoint, and so is the text."""
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    import vllm

    plain, served = (str(options.folder / "llama" / kind) for kind in ("bf16", "w4a16"))
    llm = vllm.LLM(**{**dict(model=served, quantization="nvfp4", dtype="bfloat16", seed=0, skip_tokenizer_init=True,
                             max_model_len=PROMPT + DECODED, max_num_seqs=8, enable_prefix_caching=False,
                             gpu_memory_utilization=0.4), **json.loads(options.engine)})
    params = vllm.SamplingParams(temperature=0, max_tokens=32, ignore_eos=True, detokenize=False)
    said = [[each.outputs[0].token_ids for each in llm.generate(prompts(8, PROMPT), params, use_tqdm=False)]]
    for method in ("mse", "max"):
        write(options.json, llm.collective_rpc(new_weights, args=(plain, served, method))[0])
        said.append([each.outputs[0].token_ids for each in llm.generate(prompts(8, PROMPT), params, use_tqdm=False)])
    write(options.json, dict(same_text=said[0] == said[2]))


def pair(text):
    """Returns (8, 1024) for "8x1024"."""
    count, length = map(int, text.split("x"))
    return count, length


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "run", "one"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=pathlib.Path)
        command.add_argument("--models", nargs="+", default=["llama", "experts"], choices=["llama", "experts"])
        command.add_argument("--kinds", nargs="+", default=[kind for kind in KINDS if kind not in SGLANG],
                             choices=KINDS)
        command.add_argument("--layers", type=int, default=12, help="of the model with experts; make")
        command.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
        command.add_argument("--prompts", nargs="+", type=pair, default=[(8, 1024)], metavar="COUNTxLENGTH")
        command.add_argument("--engine", default="{}", metavar="JSON", help="more options of vllm.LLM or sglang.Engine, such as "
                             '\'{"tensor_parallel_size": 2}\'')
        command.add_argument("--json", metavar="FILE", help="lines to append to")
        command.add_argument("--logs", type=pathlib.Path, metavar="FOLDER", help="what the engine printed")
        command.add_argument("--limit-s", type=float, default=1e9, help="end by then")
        command.add_argument("--least-s", type=float, default=60, help="begin no kind with less time left")
    command = commands.add_parser("decode")
    command.add_argument("folder", type=pathlib.Path)
    command.add_argument("--tokens", nargs="+", type=int, default=list(range(100, 164)), help="the prompt")
    command.add_argument("--engine", default="{}", metavar="JSON")
    command.add_argument("--json", metavar="FILE")
    command = commands.add_parser("refit")
    command.add_argument("folder", type=pathlib.Path)
    command.add_argument("--engine", default="{}", metavar="JSON")
    command.add_argument("--json", metavar="FILE")
    for name in ("table", "compare"):
        commands.add_parser(name).add_argument("files", nargs="+")
    options = parser.parse_args()
    if options.command == "table":
        return table(options.files)
    return {"make": make, "run": run, "one": one, "decode": decode, "compare": compare,
            "refit": refit}[options.command](options)


if __name__ == "__main__":
    main()
