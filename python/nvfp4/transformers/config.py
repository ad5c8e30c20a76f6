"""quantization_config of checkpoints that transformers has no class for."""

import copy

from transformers.utils.quantization_config import QuantizationConfigMixin


class ModelOptConfig(QuantizationConfigMixin):
    """What config.json of a ModelOpt checkpoint says, as it is."""

    def __init__(self, **config):
        self.quant_method = "modelopt"
        self._config = {**config, "quant_method": "modelopt"}

    def to_dict(self):
        return copy.deepcopy(self._config)

    def __iter__(self):
        yield from self.to_dict().items()
