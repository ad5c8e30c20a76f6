#pragma once

#include "checkpoint/converted.h"
#include "checkpoint/expect_quantized.h"
#include "checkpoint/findings.h"
#include "checkpoint/loaded_folder.h"
#include "checkpoint/packed_models.h"
#include "checkpoint/stored_tensors.h"
#include "checkpoint/temp_dir.h"
#include "checkpoint/tiny_model.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/convert.h"
#include "nvfp4/checkpoint/load_layers.h"
#include "nvfp4/checkpoint/repair.h"
#include "nvfp4/checkpoint/run_options.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "nvfp4/checkpoint/verify.h"
#include "nvfp4/format.h"
#include "nvfp4/quantize.h"
#include "testing.h"

/// The headers and helpers of nearly every test of checkpoints.
