"""Models of the Hugging Face Hub that the local cache lacks, fetched by huggingface_hub."""

import importlib.util
import os

#: Files with weights that are not downloaded, since nvfp4 does not read them.
UNREAD = ["*.bin", "*.ckpt", "*.gguf", "*.h5", "*.msgpack", "*.onnx*", "*.ot", "*.pt", "*.pth", "*.tflite",
          "original/*"]


def can_download():
    """Reports whether huggingface_hub is installed, and HF_HUB_OFFLINE does not forbid downloads."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    return not offline and importlib.util.find_spec("huggingface_hub") is not None


def download_model(name):
    """Downloads "org/name" or "org/name@revision" into the cache. Raises what huggingface_hub raises."""
    import huggingface_hub

    model, _, revision = name.partition("@")
    huggingface_hub.snapshot_download(model, revision=revision or None, ignore_patterns=UNREAD)
