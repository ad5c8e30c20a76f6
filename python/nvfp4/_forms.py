"""The names, dtypes and shapes of the tensors of an NVFP4 weight, for each checkpoint format."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Form:
    """The tensors of a weight [N, K] of a module, by the ends of their names."""

    method: str  #: quant_method
    codes: str  #: uint8 [N, K/2]
    scales: str  #: E4M3 [N, K/16]
    global_scale: str  #: float32, one element
    input_scale: str  #: float32, one element; optional
    divisors: bool  #: global scales are stored as DIVISORS
    scalar: tuple  #: shape of a global scale

    @property
    def names(self):
        return self.codes, self.scales, self.global_scale, self.input_scale

    def empty(self, rows, cols, has_input_scale, device):
        """Returns name -> uninitialized tensor of a weight [rows, cols]."""
        tensors = {
            self.codes: torch.empty(rows, cols // 2, dtype=torch.uint8, device=device),
            self.scales: torch.empty(rows, cols // 16, dtype=torch.float8_e4m3fn, device=device),
            self.global_scale: torch.empty(self.scalar, dtype=torch.float32, device=device)}
        if has_input_scale:
            tensors[self.input_scale] = torch.empty(self.scalar, dtype=torch.float32, device=device)
        return tensors

    def multiplier(self, scale):
        """Returns the MULTIPLIER of a stored global scale, float32 [n]."""
        return 1 / scale if self.divisors else scale

    def stored(self, multiplier):
        """Returns the stored global scale of a MULTIPLIER."""
        return 1 / multiplier if self.divisors else multiplier


FORMS = {form.method: form for form in (
    Form("modelopt", "weight", "weight_scale", "weight_scale_2", "input_scale", False, ()),
    Form("compressed-tensors", "weight_packed", "weight_scale", "weight_global_scale",
         "input_global_scale", True, (1,)))}
