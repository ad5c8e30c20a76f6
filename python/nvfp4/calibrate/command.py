"""The command `nvfp4 calibrate`."""

import shlex
import sys

from .._cli import Parser


def arguments(given=None):
    a = Parser(
        prog="nvfp4 calibrate",
        description="Runs a model on text and writes statistics of the inputs of its linear layers for nvfp4 quantize "
                    "--statistics: the largest magnitude, the sum of squares of each channel and, with --keep-gram, "
                    "the Gram matrices that --method gptq needs. One matrix of the model at a time is in memory.")
    a.add_argument("model", nargs="?", metavar="MODEL", help="a folder that transformers loads, not quantized")
    a.add_argument("--text", metavar="FILE", help="UTF-8; a line with U+001E alone separates documents")
    a.add_argument("--dataset", metavar="PATH", help="instead of --text: a folder that datasets.save_to_disk wrote, "
                   "or a .jsonl or .parquet file; needs the package datasets")
    a.add_argument("--column", default="text", metavar="NAME", help="column of the data set that has the documents (text)")
    a.add_argument("--out", metavar="STATS", help="the file to write, .safetensors")
    a.add_argument("--quantize", metavar="OUT", help="also write the quantized model, each layer as soon as it has "
                   "run: only the Gram matrices of one layer are kept")
    a.add_argument("--method", metavar="NAME", default="gptq", help="method of --quantize: gptq, gptq:N for at most N "
                   "sweeps of the descent (4), or weighted (gptq)")
    a.add_argument("--format", choices=("modelopt", "compressed-tensors"), default="modelopt",
                   help="format of --quantize (modelopt)")
    a.add_argument("--resume", action="store_true", help="continue an interrupted run, with the same options")
    a.add_argument("--keep-gram", action="store_true", help="keep the Gram matrices: about 2 K² bytes for each input")
    a.add_argument("--gram-memory", type=float, metavar="GIB", help="memory for the Gram matrices of a layer while it "
                   "runs, for inputs kept instead, and for batches that wait for a matrix; the rest is on disk, beside "
                   "STATS or OUT (8 K² bytes of the largest K, at least 64 MiB)")
    a.add_argument("--sensitivity", type=int, metavar="N", help="tokens on which to measure how the last hidden state "
                   "changes when each layer alone is quantized, for nvfp4 quantize --bits and --w4a4; 0: not at all "
                   "(as many as add a tenth to the time, 16 to 512; 0 without --out)")
    a.add_argument("--windows", type=int, default=256, metavar="N", help="number of windows of the text (256)")
    a.add_argument("--context", type=int, default=512, metavar="N", help="tokens in a window (512)")
    a.add_argument("--batch", type=int, default=8, metavar="N", help="windows at a time (8)")
    a.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32",
                   help="dtype of weights and arithmetic (float32)")
    a.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (cuda if there is a GPU)")
    a.add_argument("--rank", type=int, metavar="R", help="rank of this process, from 0: the ranks share the "
                   "text, and each writes STATS.rank-R-of-N, for --merge")
    a.add_argument("--ranks", default="1", metavar="N", help="number of ranks; auto: rank and number as mpirun, "
                   "srun or torchrun set them (1)")
    a.add_argument("--dry-run", action="store_true", help="print the time, memory and disk that a run would "
                   "take; MODEL needs only config.json")
    a.add_argument("--merge", nargs="+", metavar="STATS", help="instead add these files of one model: those of "
                   "several texts, or of all ranks")
    a.add_argument("--quiet", action="store_true", help="print errors only")
    options = a.parse_args(given)
    if options.merge is None and options.model is None:
        a.error("MODEL is required")
    if options.merge is None and not options.dry_run and (options.text is None) == (options.dataset is None):
        a.error("--text or --dataset is required, and not both")
    if options.out is None and (options.merge is not None or not options.quantize and not options.dry_run):
        a.error("--out is required")
    for name in ("windows", "context", "batch"):
        if getattr(options, name) < 1:
            a.error(f"--{name}: '{getattr(options, name)}', must be 1 or more")
    if options.sensitivity is not None and options.sensitivity < 0:
        a.error(f"--sensitivity: '{options.sensitivity}', must be 0 or more")
    if options.gram_memory is not None and not 0 <= options.gram_memory < float("inf"):
        a.error(f"--gram-memory: '{options.gram_memory:g}', must be 0 or more")
    return options


def main(given=None):
    options = arguments(given)
    import torch
    import transformers

    from . import calibrate, merge

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_float32_matmul_precision("highest")

    def progress(line):
        if not options.quiet:
            print(line, file=sys.stderr, flush=True)

    if options.merge is not None:
        merge(options.merge, options.out)
    else:
        room = None if options.gram_memory is None else int(options.gram_memory * 2**30)
        calibrate(options.model, options.text, options.out, dataset=options.dataset, column=options.column,
                  keep_gram=options.keep_gram, windows=options.windows, context=options.context,
                  batch=options.batch, dtype=options.dtype, device=options.device, dry_run=options.dry_run,
                  resume=options.resume, quantize=options.quantize, method=options.method,
                  gram_memory=room, format=options.format, rank=options.rank, ranks=options.ranks,
                  sensitivity=options.sensitivity, progress=progress)
    if not options.quiet and not options.dry_run and options.ranks == "1":
        print("\n".join(next_steps(options)))
    return 0


def next_steps(options):
    """Returns what was written, and the command that uses it."""
    model, end = options.model or "MODEL", " --method gptq" if options.keep_gram else ""
    lines = [f"statistics  {options.out}"] if options.out else []
    if options.quantize:
        return [*lines, f"output      {options.quantize}", "next        " + shlex.join(
            ["nvfp4", "evaluate", options.quantize, "--against", model, "--text", options.text or "TEXT"])]
    return [*lines, "next        " + shlex.join(["nvfp4", "quantize", model, "OUTPUT", "--statistics", options.out]) + end]
