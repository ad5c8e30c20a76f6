"""The peak of nvfp4.calibrate is the hidden states, one Gram matrix and one matrix of the model, whatever else there is.

Each model is so wide in one thing that nothing else hides it: that a term came back would be seen."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

from calibrate_cases import tokenizer_of_words, write_text_of_words
from memory_cases import most_memory, needs_linux

pytestmark = needs_linux
MB = 1_000_000
#: Of the process: what products, threads and the reading of files keep, whatever the model.
PROCESS = 40 * MB


def write_dense(folder, width, inner, vocabulary):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(hidden_size=width, intermediate_size=inner, num_hidden_layers=1,
                                      vocab_size=vocabulary, num_attention_heads=width // 64,
                                      num_key_value_heads=width // 64, max_position_embeddings=64)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer_of_words().save_pretrained(folder)
    return folder


def peak_of(folder, width, inner, vocabulary=32, windows=16, batch=4, given=""):
    """Without what the first run of a process takes."""
    text = write_text_of_words(folder / "text", documents=max(10, windows // 2))
    small = write_dense(folder / "small", 64, 128, 32)
    model = write_dense(folder / "model", width, inner, vocabulary)
    call = "nvfp4.calibrate.calibrate('{}', '{}', '{}', windows={}, context=32, batch={}, gram_memory=0{})"
    return most_memory(call.format(model, text, folder / "stats", windows, batch, given),
                       call.format(small, text, folder / "small.stats", 4, 2, given))


@pytest.mark.slow
def test_memory_holds_one_matrix_and_few_rows(tmp_path):
    width, inner, vocabulary = 1024, 4096, 32768
    layer, embedding = 4 * width * (4 * width + 3 * inner), 4 * width * vocabulary
    bound = 4 * width * inner + PROCESS
    assert peak_of(tmp_path, width, inner, vocabulary) < bound < min(layer, embedding)


@pytest.mark.slow
def test_hidden_states_once(tmp_path):
    width, windows = 512, 4096
    hidden = 4 * width * windows * 32
    bound = hidden + PROCESS
    assert peak_of(tmp_path, width, 512, windows=windows, batch=16) < bound < 2 * hidden


def test_gram_matrices_one_at_a_time(tmp_path):
    """The upper triangle beside it would be another half."""
    width, inner = 512, 6144
    gram, hidden = 4 * inner * inner, 4 * width * 16 * 32
    bound = gram + hidden + PROCESS
    assert peak_of(tmp_path, width, inner, given=", keep_gram=True") < bound < 3 * gram / 2 + hidden
