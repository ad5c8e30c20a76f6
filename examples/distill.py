#!/usr/bin/env python3
"""Distills an NVFP4 checkpoint: trains it, rounded in each forward pass, towards the model that it was made of.

  nvfp4 quantize MODEL MODEL-NVFP4 --method gptq --statistics stats.safetensors
  distill.py MODEL MODEL-NVFP4 OUT

The text is what the model itself generates from its first token, and the loss is the KL divergence from its
predictions. OUT is a checkpoint of the same layers and formats. Needs transformers, accelerate and this package.
"""

import argparse

import torch
import transformers

import nvfp4.transformers  # noqa: F401 (checks the version of transformers)
from nvfp4.torch import export, prepare


def load(folder, device, dtype=torch.float32):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device)


@torch.no_grad()
def generate(model, windows, length, batch):
    """Returns token ids [windows, length] drawn from the model, document after document."""
    config = model.generation_config
    first = config.bos_token_id if config.bos_token_id is not None else 0
    parts = []
    for begin in range(0, windows, batch):
        start = torch.full((min(batch, windows - begin), 1), first, device=model.device)
        # Without an end token a window goes on with the next document.
        parts.append(model.generate(
            start, attention_mask=torch.ones_like(start), max_length=length, do_sample=True, temperature=1.0, top_k=0,
            top_p=1.0, eos_token_id=None, pad_token_id=first).cpu())
    return torch.cat(parts)


class Distillation(transformers.Trainer):
    """A Trainer whose loss is the mean KL divergence from a teacher's predictions."""

    def __init__(self, teacher, *given, **others):
        super().__init__(*given, **others)
        self.teacher = teacher
        self.model_accepts_loss_kwargs = False  # the loss is a mean, also over accumulated batches

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        with torch.no_grad():
            p = torch.log_softmax(self.teacher(**inputs, use_cache=False).logits.float(), -1)
        outputs = model(**inputs, use_cache=False)
        q = torch.log_softmax(outputs.logits.float(), -1)
        loss = torch.nn.functional.kl_div(q.flatten(0, 1), p.flatten(0, 1), log_target=True, reduction="batchmean")
        return (loss, outputs) if return_outputs else loss


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model", metavar="MODEL", help="an unquantized folder that transformers loads")
    a.add_argument("checkpoint", metavar="MODEL-NVFP4", help="what nvfp4 quantize made of it")
    a.add_argument("out", metavar="OUT", help="the folder to write")
    a.add_argument("--steps", type=int, default=1000, metavar="N", help="(1000)")
    a.add_argument("--batch", type=int, default=16, metavar="N", help="windows a step in each process (16)")
    a.add_argument("--windows", type=int, metavar="N", help="windows of text to generate (one for each that a step takes)")
    a.add_argument("--length", type=int, default=512, metavar="N", help="tokens of a window (512)")
    a.add_argument("--rate", type=float, default=1e-4, help="the highest learning rate (0.0001)")
    a.add_argument("--activations", choices=("bf16", "max", "four_over_six", "mse"),
                   help="quantize inputs of W4A4 layers by this method, with a scale for each row; bf16: not while it trains "
                        "(the checkpoint's scales)")
    a.add_argument("--method", choices=("max", "four_over_six", "mse"),
                   help="choose block scales in each step by this method (the checkpoint's scales)")
    a.add_argument("--norms-only", action="store_true", help="train norms and biases alone")
    a.add_argument("--seed", type=int, default=1, metavar="N", help="of the text and of the order of windows (1)")
    a.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return a.parse_args()


def main():
    options = arguments()
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU
    given = transformers.TrainingArguments(
        options.out + ".run", max_steps=options.steps, per_device_train_batch_size=options.batch, seed=options.seed,
        learning_rate=options.rate, lr_scheduler_type="cosine", warmup_steps=max(1, options.steps // 20), weight_decay=0.0,
        max_grad_norm=1.0, save_strategy="no", report_to=[], logging_steps=50, use_cpu=options.device == "cpu",
        remove_unused_columns=False)
    transformers.set_seed(options.seed)
    # The text comes from the model in the dtype of its folder. A window that is trained on again is soon learned by heart.
    windows = options.windows or options.steps * options.batch * given.world_size
    text = generate(load(options.model, given.device, "auto").eval(), windows, options.length,
                    batch=4096 if options.device == "cuda" else 16)
    teacher = load(options.model, given.device).eval().requires_grad_(False)
    student = prepare(load(options.model, given.device), options.checkpoint, method=options.method,
                      activations=options.activations)
    if options.norms_only:
        for parameter in student.parameters():
            parameter.requires_grad_(parameter.dim() == 1)
    trainer = Distillation(teacher, student, given, train_dataset=[{"input_ids": row} for row in text])
    trainer.train()
    export(student, options.out)


if __name__ == "__main__":
    main()
